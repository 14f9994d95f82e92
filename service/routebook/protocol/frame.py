"""Frames, the requests and responses in them, and the numbers of the protocol: codes, flags, languages, releases.

    4 bytes   length of everything that follows
    1 byte    encoding of the header
    3 bytes   length of the header
              header, body

Every length is checked before any byte is kept for it.
"""

from enum import IntEnum, StrEnum
from struct import Struct
from typing import NamedTuple

from routebook.errors import RoutebookError


class RequestCode(IntEnum):
    """Requests to a name server. The last one is sent by a name server itself."""

    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217
    GET_KVLIST_BY_NAMESPACE = 219
    GET_TOPICS_BY_CLUSTER = 224
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    QUERY_DATA_VERSION = 322
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_BROKER_MEMBER_GROUP = 901
    BROKER_HEARTBEAT = 904
    NOTIFY_MIN_BROKER_ID_CHANGE = 905


class ResponseCode(IntEnum):
    """Answers of a name server. Peers distinguish 0, 17 and 1500; all others become an exception with the remark."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    QUERY_NOT_FOUND = 22
    GO_AWAY = 1500


REQUEST_NAMES = {int(code): code.name for code in RequestCode}


def request_name(code: int) -> str:
    """For logs and metrics. All unknown codes have one name, however many of them a peer sends."""
    return REQUEST_NAMES.get(code, "UNKNOWN")


# Bits of a header's flag; the others have no meaning. Plain numbers, because testing an IntFlag takes a microsecond.
RESPONSE_FLAG = 1
ONEWAY_FLAG = 2


class Language(IntEnum):
    """The language of the peer, used in logs only. A name or number that is not listed here becomes OTHER."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


def release(major: int, minor: int, patch: int) -> int:
    """The number of a release of RocketMQ 4 or 5 in a header. Each release has a SNAPSHOT before it."""
    return {4: 213, 5: 413}[major] + 20 * minor + 2 * patch


V3_0_11 = 37
"""Since this release the body of a registration may be compressed."""
V4_9_4 = release(4, 9, 4)
"""Since this release routes are standard JSON."""
V5_0_0 = release(5, 0, 0)
"""Since this release a compressed registration ends with the mappings of static topics."""
V5_3_1 = release(5, 3, 1)
"""Newer releases understand GO_AWAY."""
SPOKEN_VERSION = release(5, 3, 3)
"""The version in our own headers: the release whose answers we give. Peers only log it."""


Ext = dict[str, str]

UNMATCHABLE_OPAQUE = -(2**31)
"""For a header without an opaque number. RocketMQ uses its own counter then, which may by chance be a number that the
client waits for. Clients count from 0 and reach this number after two thousand million requests.
"""


class HeaderEncoding(IntEnum):
    """The first byte after the length of a frame. Peers read both encodings, whichever they write."""

    JSON = 0
    ROCKETMQ = 1


class Request(NamedTuple):
    """A named tuple, because one is built for every frame, and a frozen dataclass takes five times as long to build."""

    code: int
    opaque: int
    ext: Ext | None = None
    """None if the header had no ext fields at all. The functions that read fields treat None like {}."""
    body: bytes = b""
    """A frame does not distinguish an empty body from none."""
    version: int = SPOKEN_VERSION
    language: Language = Language.JAVA
    flag: int = 0
    remark: str | None = None

    @property
    def is_oneway(self) -> bool:
        """Whether no answer may be sent, not even an error."""
        return bool(self.flag & ONEWAY_FLAG)


class Response(NamedTuple):
    code: int
    opaque: int
    ext: Ext | None = None
    """{} stands for a typed header without fields, None for no typed header."""
    body: bytes = b""
    version: int = SPOKEN_VERSION
    language: Language = Language.JAVA
    flag: int = RESPONSE_FLAG
    remark: str | None = None


Command = Request | Response


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

    def answer(self, http_port: int) -> bytes:  # noqa: ARG002 needed for an HTTP request
        return b""


class HttpRequestError(PeerProtocolError):
    """An HTTP request arrived. Its first bytes would announce a frame of more than a gigabyte."""

    def __init__(self) -> None:
        super().__init__(
            Violation.FRAME_LENGTH,
            "An HTTP request arrived on the RocketMQ port.",
            advice="HTTP has a port of its own, http_port.",
        )

    def answer(self, http_port: int) -> bytes:
        """For a person who confused the two ports; no RocketMQ peer ever gets it."""
        text = f"This is the RocketMQ port; HTTP is on port {http_port}.\n".encode()
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
        return head.encode() + b"Connection: close\r\n\r\n" + text


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
_HTTP_BEGINNINGS = frozenset({b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC"})
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
            if length.to_bytes(LENGTH_BYTES, "big") in _HTTP_BEGINNINGS:
                raise HttpRequestError
            raise PeerProtocolError(
                Violation.FRAME_LENGTH,
                f"A frame of {length + LENGTH_BYTES} bytes is announced; max_frame_bytes is {self.max_frame_bytes}.",
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
                f"A header of {header_length} bytes is announced; max_header_bytes is {self.max_header_bytes}.",
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
        """The next check needs this many bytes, so a frame in a million pieces is checked three times."""

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
