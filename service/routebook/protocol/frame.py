"""Frames: where each one ends in a stream of bytes, and the errors of the protocol.

    4 bytes   length of everything that follows
    1 byte    encoding of the header
    3 bytes   length of the header
              header, body

Every length is checked before any byte is kept for it.
"""

from enum import StrEnum
from struct import Struct
from typing import NamedTuple

from routebook.errors import RoutebookError
from routebook.protocol.command import HeaderEncoding


class Violation(StrEnum):
    """The kinds of errors; their values are labels of a metric."""

    FRAME_LENGTH = "frame length"
    HEADER_LENGTH = "header length"
    SERIALIZATION = "serialization"
    JSON_HEADER = "JSON header"
    BINARY_HEADER = "binary header"
    PROXY_HEADER = "PROXY header"
    MISUSE = "misuse"


class ProtocolError(RoutebookError):
    """A violation of the remoting protocol: the peer's, or our own."""

    def __init__(self, violation: Violation, message: str, *, advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.violation = violation


class PeerProtocolError(ProtocolError):
    """The peer sent something invalid. It gets no answer, and the connection is closed, as by RocketMQ."""


class OwnProtocolError(ProtocolError):
    """We tried to send something that the protocol does not allow. Nothing of it was sent."""


MAX_FRAME_BYTES = 16 * 1024 * 1024
"""RocketMQ's limit, which includes the length field. Peers also apply it to what they receive."""
MAX_HEADER_BYTES = 128 * 1024
"""Our own limit; RocketMQ has none. Real headers have some hundred bytes, except for a long key-value of the order
topics. 16 MiB of JSON brackets would take seconds, and much memory, to parse.
"""

PREFIX = Struct(">iI")
PREFIX_BYTES = PREFIX.size
LENGTH_BYTES = 4
HEADER_WORD_BYTES = 4
HEADER_LENGTH_BITS = 24
HEADER_LENGTH_MASK = (1 << HEADER_LENGTH_BITS) - 1
ENCODINGS = {int(encoding): encoding for encoding in HeaderEncoding}


class Frame(NamedTuple):
    encoding: HeaderEncoding
    header: bytes
    body: bytes


class FrameLimits(NamedTuple):
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_header_bytes: int = MAX_HEADER_BYTES

    def check_length(self, length: int) -> None:
        """The first four bytes are enough to refuse a frame, so nothing is kept for one that is too long."""
        if length + LENGTH_BYTES > self.max_frame_bytes:
            raise PeerProtocolError(
                Violation.FRAME_LENGTH,
                f"A frame of {length + LENGTH_BYTES} bytes is announced; the limit is {self.max_frame_bytes}.",
                advice="Raise the limit on both sides, or let the broker register its topics in parts.",
            )
        if length < HEADER_WORD_BYTES:
            raise PeerProtocolError(
                Violation.FRAME_LENGTH, f"A frame announces {length} bytes; its header word alone has four."
            )

    def check_header_word(self, length: int, word: int) -> HeaderEncoding:
        encoding = ENCODINGS.get(word >> HEADER_LENGTH_BITS)
        if encoding is None:
            raise PeerProtocolError(
                Violation.SERIALIZATION,
                f"A frame's header has encoding {word >> HEADER_LENGTH_BITS}; 0 (JSON) and 1 (ROCKETMQ) exist.",
            )
        header_length = word & HEADER_LENGTH_MASK
        if header_length > length - HEADER_WORD_BYTES:
            raise PeerProtocolError(
                Violation.HEADER_LENGTH, f"A header of {header_length} bytes does not fit a frame of {length}."
            )
        if header_length > self.max_header_bytes:
            raise PeerProtocolError(
                Violation.HEADER_LENGTH,
                f"A header of {header_length} bytes is announced; the limit is {self.max_header_bytes}.",
            )
        return encoding


class FrameReader:
    """Cuts a stream into frames.

    A chunk of complete frames, the usual case, is not copied. Between chunks at most one incomplete frame is kept, and
    no more memory used than its bytes that have arrived.
    """

    __slots__ = ("_at", "_limits", "_source", "_wanted")

    def __init__(self, limits: FrameLimits) -> None:
        self._limits = limits
        self._source: bytes | bytearray = b""
        """The last chunk, or the kept bytes of a frame that extends over several chunks."""
        self._at = 0
        self._wanted = LENGTH_BYTES
        """Nothing is checked before so many bytes have arrived. So a frame in a million pieces is checked three times.
        """

    @property
    def unread_bytes(self) -> int:
        """When no complete frame is left, these are the bytes of an incomplete one."""
        return len(self._source) - self._at

    def receive(self, data: bytes) -> None:
        if not self.unread_bytes:
            self._source = data
        elif isinstance(self._source, bytearray):
            del self._source[: self._at]
            self._source += data
        else:
            self._source = bytearray(memoryview(self._source)[self._at :])
            self._source += data
        self._at = 0

    def next_frame(self) -> Frame | None:
        """None: more bytes are needed. After an error the rest of the stream is meaningless."""
        source, at = self._source, self._at
        unread = len(source) - at
        if unread < self._wanted:
            if not unread:
                self._source, self._at = b"", 0
            return None
        if unread < PREFIX_BYTES:
            self._limits.check_length(int.from_bytes(source[at : at + LENGTH_BYTES], "big", signed=True))
            self._wanted = PREFIX_BYTES
            return None
        length, word = PREFIX.unpack_from(source, at)
        self._limits.check_length(length)
        encoding = self._limits.check_header_word(length, word)
        end = at + LENGTH_BYTES + length
        if len(source) < end:
            self._wanted = LENGTH_BYTES + length
            return None
        begin = at + PREFIX_BYTES
        split = begin + (word & HEADER_LENGTH_MASK)
        self._at = end
        self._wanted = LENGTH_BYTES
        if isinstance(source, bytes):
            return Frame(encoding, source[begin:split], source[split:end])
        with memoryview(source) as view:
            return Frame(encoding, bytes(view[begin:split]), bytes(view[split:end]))


def frame_head(
    encoding: HeaderEncoding, header: bytes, body_length: int, max_frame_bytes: int = MAX_FRAME_BYTES
) -> bytes:
    """A frame without its body, which many frames may share without copying it."""
    length = HEADER_WORD_BYTES + len(header) + body_length
    if length + LENGTH_BYTES > max_frame_bytes or len(header) > HEADER_LENGTH_MASK:
        raise OwnProtocolError(
            Violation.FRAME_LENGTH,
            f"A frame of {length + LENGTH_BYTES} bytes cannot be sent: peers take {max_frame_bytes} at most.",
        )
    return PREFIX.pack(length, encoding << HEADER_LENGTH_BITS | len(header)) + header
