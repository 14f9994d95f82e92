"""Records the frames that pass a balancer, and sends requests of our own.

This module shares no code with `routebook.protocol`, so that a fault there cannot hide itself.
"""

import itertools
import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

ASK_SECONDS = 10.0


@dataclass(frozen=True)
class Frame:
    connection: int
    from_peer: bool
    """False for a frame of the name server."""
    code: int
    flag: int
    version: int
    opaque: int
    ext: dict[str, str]
    body: bytes
    is_binary: bool
    at: float = field(default_factory=time.monotonic)

    @property
    def is_response(self) -> bool:
        return bool(self.flag & 1)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & 2)


class FrameLog:
    """An observer for a `TcpBalancer` that records frames."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.unreadable: set[int] = set()
        """Connections whose bytes are not frames, because they use TLS."""
        self._incomplete: dict[tuple[int, bool], bytes] = {}
        self._lock = threading.Lock()

    def __call__(self, connection: int, from_peer: bool, data: bytes) -> None:
        key = (connection, from_peer)
        if not data:
            self._incomplete.pop(key, None)
        elif connection not in self.unreadable:
            received = self._incomplete.pop(key, b"") + data
            if received[0] != 0:
                self.unreadable.add(connection)
                return
            with self._lock:
                while len(received) >= 4 and len(received) >= (size := 4 + int.from_bytes(received[:4])):
                    self.frames.append(_frame(connection, from_peer, received[4:size]))
                    received = received[size:]
            self._incomplete[key] = received

    def requests(self, *codes: int, since: float = 0.0) -> list[Frame]:
        """The requests of peers with one of these codes, or with any code."""
        with self._lock:
            frames = self.frames.copy()
        return [
            frame
            for frame in frames
            if frame.from_peer and not frame.is_response and frame.at >= since and (not codes or frame.code in codes)
        ]

    def of_broker(self, name: str, *codes: int, since: float = 0.0) -> list[Frame]:
        return [frame for frame in self.requests(*codes, since=since) if frame.ext.get("brokerName") == name]

    def answer_to(self, request: Frame) -> Frame | None:
        with self._lock:
            frames = self.frames.copy()
        for frame in frames:
            if (
                frame.is_response
                and not frame.from_peer
                and (frame.connection, frame.opaque) == (request.connection, request.opaque)
                and frame.at >= request.at
            ):
                return frame
        return None

    def codes(self) -> Counter[int]:
        return Counter(frame.code for frame in self.requests())


def _frame(connection: int, from_peer: bool, data: bytes) -> Frame:
    kind, size = data[0], int.from_bytes(data[1:4])
    header, body = data[4 : 4 + size], data[4 + size :]
    if kind == 0:
        fields = json.loads(header)
        ext = {name: str(value) for name, value in (fields.get("extFields") or {}).items()}
        numbers = [int(fields[name]) for name in ("code", "flag", "version", "opaque")]
    else:
        ext, numbers, _ = _binary_header(header)
    code, flag, version, opaque = numbers
    return Frame(connection, from_peer, code, flag, version, opaque, ext, body, is_binary=kind == 1)


def _binary_header(header: bytes) -> tuple[dict[str, str], list[int], str]:
    code, _, version, opaque, flag, remark_size = struct.unpack_from(">HBHiii", header)
    offset = 17 + remark_size
    remark = header[17:offset].decode()
    (ext_size,) = struct.unpack_from(">i", header, offset)
    offset += 4
    found: dict[str, str] = {}
    end = offset + ext_size
    while offset < end:
        (length,) = struct.unpack_from(">H", header, offset)
        name = header[offset + 2 : offset + 2 + length].decode()
        offset += 2 + length
        (length,) = struct.unpack_from(">i", header, offset)
        found[name] = header[offset + 4 : offset + 4 + length].decode()
        offset += 4 + length
    return found, [code, flag, version, opaque], remark


_opaques = itertools.count(1)


@dataclass(frozen=True)
class Answer:
    code: int
    remark: str
    ext: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The parsed body. Unquoted integer keys, which older releases send, are accepted."""
        return json.loads(re.sub(rb"([{,])(-?\d+):", rb'\1"\2":', self.body))


def ask(address: str, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Answer:
    """Sends one request over a new connection, and returns the answer."""
    host, _, port = address.rpartition(":")
    header = {"code": code, "flag": 0, "language": "JAVA", "opaque": next(_opaques), "version": 513}
    data = json.dumps({**header, "serializeTypeCurrentRPC": "JSON", "extFields": ext or {}}).encode()
    with socket.create_connection((host, int(port)), ASK_SECONDS) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(data) + len(body), len(data)) + data + body)
        with connection.makefile("rb") as answers:
            size = int.from_bytes(answers.read(4))
            received = answers.read(size)
    header_size = int.from_bytes(received[1:4])
    if received[0] == 1:
        # A peer configured for binary headers sends them in every answer.
        ext, (answer_code, *_), remark = _binary_header(received[4 : 4 + header_size])
        return Answer(answer_code, remark, ext, received[4 + header_size :])
    fields = json.loads(received[4 : 4 + header_size])
    ext = fields.get("extFields") or {}
    return Answer(fields["code"], fields.get("remark") or "", ext, received[4 + header_size :])


def route(address: str, topic: str) -> dict[str, Any] | None:
    """The route as a current client gets it. None if the topic does not exist."""
    answer = ask(address, 105, {"topic": topic, "acceptStandardJsonOnly": "true"})
    if answer.code == 17:
        return None
    assert answer.code == 0, f"{answer.code}: {answer.remark}"
    found: dict[str, Any] = answer.json()
    return found


def addresses(address: str, topic: str) -> dict[str, dict[str, str]]:
    """The addresses in the route: broker name → id → address. Empty without a route."""
    found = route(address, topic)
    return {group["brokerName"]: dict(group["brokerAddrs"]) for group in found["brokerDatas"]} if found else {}
