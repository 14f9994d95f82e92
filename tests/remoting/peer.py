"""A peer made by hand: it shares no code with the port it speaks to."""

import asyncio
import json
import struct
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.protocol.plain_frames import framed

PATIENCE_S = 10.0


class Answer(NamedTuple):
    code: int
    ext: dict[str, str] | None
    remark: str | None
    body: bytes
    opaque: int


class Peer:
    """Asks one thing at a time; `write` and `read` are for those that do not."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.address = "{}:{}".format(*writer.get_extra_info("sockname")[:2])
        self._opaque = 0

    @classmethod
    async def to(cls, address: str, **options: Any) -> Self:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=2**25, **options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()

    def cut(self) -> None:
        self.writer.transport.abort()

    async def leave(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    def request(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, version: int = 479, flag: int = 0
    ) -> bytes:
        self._opaque += 1
        header: dict[str, Any] = {"code": code, "flag": flag, "language": "JAVA", "opaque": self._opaque}
        header |= {"serializeTypeCurrentRPC": "JSON", "version": version}
        if ext is not None:
            header["extFields"] = ext
        return framed(json.dumps(header).encode(), body)

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readexactly(4)
            return head + await self.reader.readexactly(struct.unpack(">i", head)[0])

    async def read(self) -> Answer:
        frame = await self.frame()
        assert frame[4] == 0, "a binary answer"
        split = 8 + int.from_bytes(frame[5:8], "big")
        header = json.loads(frame[8:split])
        assert header["flag"] == 1
        return Answer(header["code"], header.get("extFields"), header.get("remark"), frame[split:], header["opaque"])

    async def ask(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, version: int = 479
    ) -> Answer:
        self.write(self.request(code, ext, body, version=version))
        answer = await self.read()
        assert answer.opaque == self._opaque
        return answer

    def tell(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.write(self.request(code, ext, body, flag=2))

    async def is_closed(self) -> bool:
        """Waits for the other side to close; what it says before is dropped."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                while await self.reader.read(2**16):
                    pass
            except ConnectionError:
                pass
        return True
