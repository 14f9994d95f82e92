"""Requests and responses, in either encoding of the header, and the numbers of the protocol: codes, flags, languages,
releases.
"""

from enum import IntEnum
from typing import NamedTuple


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
