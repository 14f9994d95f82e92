"""A TCP proxy on loopback that records the frames that pass: one of each kind, in both directions.

    python tests/protocol/recorded/record.py LISTEN_PORT NAME_SERVER_PORT FILE SECONDS

README.md describes how the files beside it were made. Frames are cut by their lengths alone, without our own code.
"""

import asyncio
import re
import struct
import sys
import textwrap
from pathlib import Path

CODE = re.compile(rb'"code":(\d+)')


class Recording:
    def __init__(self) -> None:
        self.frames: dict[str, bytes] = {}
        self.asked: dict[tuple[int, int], int] = {}

    def keep(self, connection: int, frame: bytes) -> None:
        """Responses are named after the code of their request, which connection and opaque number identify."""
        header_end = 8 + int.from_bytes(frame[5:8], "big")
        if frame[4] == 0:
            header = frame[8:header_end]
            found = CODE.search(header)
            code = int(found[1]) if found else 0
            opaque = int((re.search(rb'"opaque":(-?\d+)', header) or [b"", b"0"])[1])
            flag = int((re.search(rb'"flag":(\d+)', header) or [b"", b"0"])[1])
        else:
            code, _, _, opaque, flag = struct.unpack_from(">hbhii", frame, 8)
        encoding = "json" if frame[4] == 0 else "binary"
        if flag & 1:
            self.frames.setdefault(f"{encoding} response {self.asked.get((connection, opaque))} {code}", frame)
        else:
            self.asked[connection, opaque] = code
            self.frames.setdefault(f"{encoding} request {code}", frame)

    def write(self, path: Path) -> None:
        parts = [
            "\n".join([f"# {name}", *textwrap.wrap(frame.hex(), 120), ""])
            for name, frame in sorted(self.frames.items())
        ]
        path.write_text("\n".join(parts))


async def carry(
    recording: Recording, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        while True:
            prefix = await reader.readexactly(4)
            frame = prefix + await reader.readexactly(int.from_bytes(prefix, "big"))
            recording.keep(connection, frame)
            writer.write(frame)
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        writer.close()


async def record(listen_port: int, name_server_port: int, path: Path, seconds: float) -> None:
    recording = Recording()
    connections = iter(range(1_000_000))

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = next(connections)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", name_server_port)
        async with asyncio.TaskGroup() as both:
            both.create_task(carry(recording, connection, reader, far_writer))
            both.create_task(carry(recording, connection, far_reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", listen_port)
    async with asyncio.timeout(seconds + 1):
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.5)
            recording.write(path)
    server.close()


if __name__ == "__main__":
    asyncio.run(record(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])))
