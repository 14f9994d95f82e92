"""JSON bodies of the remoting protocol: the errors, the conversions, and a reader that is as lenient as RocketMQ's.

`read_json` decodes a body into a type, in three attempts, each made only when the one before was refused:

1. `msgspec`: standard JSON, which nearly every body is.
2. `msgspec` again, after integer keys were put in quotes. Brokers with static topics send
   `"currIdMap":{0:0,2:1}`, the one deviation from standard JSON that real brokers make.
3. `parse_leniently`: single quotes, names without quotes, surplus commas. RocketMQ's JSON library accepts these, but no
   known peer sends them. This parser is slow, so the size of what it is given is limited.

All three give equal values. A value of the wrong kind is converted as RocketMQ's library does (seen in releases 5.3.3
and 5.5.0): a number may be in quotes, a fraction is cut off, true is 1, and null means absent. A number out of range,
or a text that is not a number, makes the whole body invalid. Every failure is a `BodyError`, answered with code 1.

Below the readers are the JSON objects that occur in the bodies of requests, and the two short bodies: QUERYDATA_VERSION
(322) and REGISTER_TOPIC_IN_NAMESRV (217).
"""

import math
import re
import reprlib
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from routebook.errors import RoutebookError
from routebook.model.broker import DataVersion, QueueData, TopicMapping

_T = TypeVar("_T")

Scalar = int | float | str | bool | None
"""A JSON value that is neither an object nor an array, before it is converted."""
Absent = Literal[""] | None
"""RocketMQ's JSON library reads the empty text as a missing object."""


class BodyError(RoutebookError):
    """A peer's body cannot be used, and nothing of it has taken effect."""

    @property
    def remark(self) -> str:
        """The remark of the answer. RocketMQ sends the text of a Java exception here, which peers only log."""
        return str(self)


class JsonSyntaxError(BodyError):
    """Not JSON, or JSON that only the lenient parser could read and that is too long for it."""


class JsonLimitError(BodyError):
    """JSON that is nested deeper, or has more values, than any real peer sends. It is not read to its end."""


class JsonShapeError(BodyError):
    """Well-formed JSON with a value of the wrong kind somewhere."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        # reprlib: the value may be megabytes long, or nested deeper than repr can follow.
        super().__init__(f"{field} is {reprlib.repr(value)}.", advice=f"Allowed: {allowed}.")


class JsonTypeError(BodyError):
    """Well-formed JSON that does not fit the type it is decoded into; msgspec's message names the path."""


class NullBodyError(BodyError):
    """A body that decodes to null: the word `null`, or bytes that are not UTF-8. RocketMQ fails on a null pointer."""

    def __init__(self, what: str) -> None:
        super().__init__("The body decodes to null: `null`, or not UTF-8 (as compressed bytes are not).")
        self.what = what

    @property
    def remark(self) -> str:
        return f"NullPointerException: {self.what}. {self}"


class ChecksumError(BodyError):
    """The body's checksum is not the one that its sender announced."""

    def __init__(self, announced: int, found: int) -> None:
        super().__init__(f"bodyCrc32 is {announced}, the body's is {found}.")
        self.announced = announced
        self.found = found

    @property
    def remark(self) -> str:
        return "crc32 not match"


class VersionError(BodyError):
    """The version in the header is negative, so it does not say which form the body has."""

    def __init__(self, version: int) -> None:
        super().__init__(f"The header's version is {version}.", advice="Allowed: 0 or more.")
        self.version = version


class InflateError(BodyError):
    """A compressed body that ends too early, or is not a zlib stream."""


class InflateLimitError(InflateError):
    """A compressed body that would grow beyond the size that is allowed for it."""

    def __init__(self, limit_bytes: int, setting: str) -> None:
        super().__init__(
            f"The body inflates to more than {limit_bytes} bytes, the limit that follows from {setting}.",
            advice="Register in smaller parts, or see docs/limits.md.",
        )
        self.limit_bytes = limit_bytes
        self.setting = setting


class TopicLimitError(BodyError):
    """A registration of more topics than one may have."""

    def __init__(self, found: int, limit: int) -> None:
        super().__init__(
            f"The registration has {found} topics or mappings, and max_topics_per_broker allows {limit}.",
            advice="See docs/limits.md; the setting is max_topics_per_broker.",
        )
        self.found = found
        self.limit = limit


class RegistrationBodyError(BodyError):
    """The body of a registration cannot be decoded; `cause` says why. The remark begins as RocketMQ's does."""

    def __init__(self, cause: BodyError) -> None:
        super().__init__(f"Failed to decode RegisterBrokerBody: {cause}")
        self.cause = cause


INT32: Final = (-(2**31), 2**31 - 1)
INT64: Final = (-(2**63), 2**63 - 1)

_QUOTED_NUMBER: Final = re.compile(r"(?P<whole>[+-]?[0-9]{1,20})(?:\.[0-9]*)?")


def int32(field: str, value: object, *, absent: int) -> int:
    return absent if value is None or value == "" else _within(INT32, field, value)


def int64(field: str, value: object, *, absent: int) -> int:
    return absent if value is None or value == "" else _within(INT64, field, value)


def _within(bounds: tuple[int, int], field: str, value: object) -> int:
    number = _whole_number(value)
    if number is None or not bounds[0] <= number <= bounds[1]:
        raise JsonShapeError(field, value, f"a number from {bounds[0]} to {bounds[1]}")
    return number


def _whole_number(value: object) -> int | None:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    if isinstance(value, str):
        found = _QUOTED_NUMBER.fullmatch(value)
        return int(found["whole"]) if found else None
    return None


def flag(value: object) -> bool:
    """True for the text `true` in any letter case and for numbers other than 0; everything else is false."""
    return value.lower() == "true" if isinstance(value, str) else isinstance(value, int | float) and value != 0


def text(field: str, value: object) -> str | None:
    if isinstance(value, str):
        return well_formed(value)
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise JsonShapeError(field, value, "a text")


def well_formed(value: str) -> str:
    """Replaces halves of surrogate pairs, which the store cannot hold, with `?`, as Java does when it writes them."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


MAX_LENIENT_DEPTH: Final = 512
"""Real bodies have five levels. RocketMQ's own parser runs out of stack at some thousand."""
LONGEST_NUMBER: Final = 4300
"""Python converts no integer of more digits. Such a number, which fits no field, is kept as a text."""

_TOKEN: Final = re.compile(
    r"""[ \t\r\n\f\v]*+(?:
        (?P<mark>[{}\[\],:])
      | "(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"
      | '(?P<single>[^'\\]*(?:\\.[^'\\]*)*)'
      | (?P<word>[^\s{}\[\],:"']++)
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""No two adjacent runs of digits: a failed match would try every way to divide the digits between them."""
_ESCAPE: Final = re.compile(r"\\(?:u(?P<unicode>[0-9A-Fa-f]{4})|(?P<letter>.))", re.DOTALL)
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", **{c: c for c in "\"'\\/"}}
_WORDS: Final[dict[str, object]] = {"true": True, "false": False, "null": None}
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")

Token = tuple[str, str]
"""Kind and text: `mark`, `double`, `single`, `word` or `end`."""


def parse_leniently(text: str) -> object:
    """RocketMQ's lenient JSON, of which standard JSON is a part. Without recursion, so that our own limit bounds the
    depth, and not the interpreter's.
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._open: list[dict[str, object] | list[object]] = []
        """Objects and arrays that are not closed yet, outermost first."""

    def parse(self) -> object:
        outermost: list[object] = []
        self._take_item(outermost, self._next())
        while self._open:
            inner = self._open[-1]
            token = self._next()
            if self._closes(inner, token):
                self._close()
            else:
                self._take_item(inner, token)
        if self._next()[0] != "end":
            raise self._unexpected("nothing more")
        return outermost[0]

    def _take_item(self, container: dict[str, object] | list[object], token: Token) -> None:
        """One member or element, with the comma behind it unless it is an object or array, which is still open."""
        if isinstance(container, dict):
            key = self._key(token)
            value = self._value(self._next())
            container[key] = value
        else:
            value = self._value(token)
            container.append(value)
        if isinstance(value, dict | list):
            self._open.append(value)
            if len(self._open) > MAX_LENIENT_DEPTH:
                raise JsonLimitError(f"JSON deeper than {MAX_LENIENT_DEPTH} levels.")
        else:
            self._take_comma()

    def _close(self) -> None:
        self._open.pop()
        self._take_comma()

    def _take_comma(self) -> None:
        """The comma between items. Before a closing bracket it may be missing, and one too many is accepted."""
        if not self._open:
            return
        before = self._at
        token = self._next()
        if token == ("mark", ","):
            return
        if not self._closes(self._open[-1], token):
            raise self._unexpected("a comma or the end of what is open")
        self._at = before

    def _key(self, token: Token) -> str:
        kind, text = token
        if kind == "word":
            key = text
        elif kind in ("double", "single"):
            key = self._unescaped(text)
        else:
            raise self._unexpected("a name")
        if self._next() != ("mark", ":"):
            raise self._unexpected("a colon")
        return key

    def _value(self, token: Token) -> object:
        kind, text = token
        if kind in ("double", "single"):
            return self._unescaped(text)
        if kind == "word":
            return self._word(text)
        if token == ("mark", "{"):
            return dict[str, object]()
        if token == ("mark", "["):
            return list[object]()
        raise self._unexpected("a value")

    def _word(self, text: str) -> object:
        if text in _WORDS:
            return _WORDS[text]
        if not _NUMBER.fullmatch(text):
            raise self._unexpected("a value")
        if len(text.lstrip("+-")) > LONGEST_NUMBER:
            return text
        return int(text) if _INTEGER.fullmatch(text) else float(text)

    def _unescaped(self, text: str) -> str:
        if "\\" not in text:
            return text
        found = _ESCAPE.sub(self._letter, text)
        # A letter beyond 16 bits is escaped as the two halves of a surrogate pair. Halves that stay alone become `?`.
        if _SURROGATE.search(found):
            found = found.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return well_formed(found)

    def _letter(self, escape: re.Match[str]) -> str:
        if escape["unicode"]:
            return chr(int(escape["unicode"], 16))
        letter = _LETTERS.get(escape["letter"])
        if letter is None:
            raise self._unexpected("an escape of JSON inside a text")
        return letter

    @staticmethod
    def _closes(container: dict[str, object] | list[object], token: Token) -> bool:
        return token == ("mark", "}" if isinstance(container, dict) else "]")

    def _next(self) -> Token:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise self._unexpected("the end of a text")
        self._at = found.end()
        kind = found.lastgroup or "end"
        return kind, found[kind]

    def _unexpected(self, wanted: str) -> JsonSyntaxError:
        return JsonSyntaxError(f"Not JSON at character {self._at}.", advice=f"Expected {wanted}.")


MAX_JSON_VALUES: Final = 2**21
"""Limit of values, counted by their commas. A broker of 70,000 topics sends 700,000; without the limit, 16 MiB of
`[[],[],[],…` would become five million lists, twenty times their size in memory.
"""
MAX_LENIENT_BYTES: Final = 64 * 1024
"""The lenient parser needs 10 ms for this many bytes, and the event loop waits for it. They hold a registration of some
350 topics. Bodies of real brokers never get here: what they write is read by the two attempts before.
"""
ANY_JSON: Final[msgspec.json.Decoder[object]] = msgspec.json.Decoder(object)

_INTEGER_KEY: Final = re.compile(rb"([{,]\s*+)(-?[0-9]++)(?=\s*+:)")
"""In two groups: what stands before a key, and the key."""


def read_json(
    body: bytes,
    decoder: msgspec.json.Decoder[_T],
    *,
    max_values: int = MAX_JSON_VALUES,
    max_lenient_bytes: int = MAX_LENIENT_BYTES,
) -> _T | None:
    """None for `null`, for a blank body, and for bytes that are not UTF-8, as in release 5.3.3 (5.5.0 refuses the last
    two). Of equal keys the last counts.
    """
    if not is_utf8(body):
        return None
    if len(body) > max_values:
        check_values(count_values(body), max_values)
    return decode_json(body, decoder, max_lenient_bytes=max_lenient_bytes)


def is_utf8(body: bytes) -> bool:
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError:
            return False
    return True


def count_values(part: bytes) -> int:
    """At least the number of values: each but the last of an object or array ends with a comma."""
    return part.count(b",") + part.count(b"{") + part.count(b"[")


def check_values(count: int, max_values: int = MAX_JSON_VALUES) -> None:
    if count > max_values:
        raise JsonLimitError(f"JSON with more than {max_values} values.", advice="Send it in smaller parts.")


def decode_json(
    body: bytes,
    decoder: msgspec.json.Decoder[_T],
    *,
    quotes_keys: bool = True,
    max_lenient_bytes: int = MAX_LENIENT_BYTES,
) -> _T | None:
    """As `read_json`, for a body that is known to be UTF-8. Without `quotes_keys` the second attempt is left out."""
    try:
        return decode_standard(body, decoder) if quotes_keys else decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        # Raised here: an error that a local variable names would keep the body until the garbage collector runs.
        if len(body) > max_lenient_bytes:
            raise _refusal_of(error, len(body)) from None
    text = body.decode()
    if not text or text.isspace():
        return None
    value: _T = convert(parse_leniently(text), decoder.type)
    return value


def convert(value: object, wanted: Any) -> Any:
    """A value that was read without a type, as that type."""
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        raise JsonTypeError(f"{error}.") from None


def decode_standard(body: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Standard JSON, in which integer keys may lack their quotes. Raises msgspec's errors.

    Texts need no special treatment. If something in a text looks like an integer key, the quote inserted before it ends
    that text, and a digit follows; no JSON has a digit there, so the result is refused and not misread.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return decoder.decode(_with_quoted_integer_keys(body))


def _with_quoted_integer_keys(body: bytes) -> bytes:
    """Quicker than a substitution, which Python 3.11 expands key by key."""
    pieces = _INTEGER_KEY.split(body)
    pieces[1::3] = [mark + b'"' for mark in pieces[1::3]]
    pieces[2::3] = [key + b'"' for key in pieces[2::3]]
    return b"".join(pieces)


def _refusal_of(error: Exception, size: int) -> BodyError:
    if isinstance(error, RecursionError):
        return JsonLimitError("JSON deeper than the interpreter can follow.")
    if isinstance(error, msgspec.ValidationError):
        return JsonTypeError(f"{error}.")
    return JsonSyntaxError(f"{size} bytes that are not standard JSON: {error}.", advice='Put names and texts in ".')


FiltersBody = list[Scalar] | str | None


class DataVersionBody(Struct, rename="camel", gc=False):
    counter: Scalar = None
    state_version: Scalar = None
    timestamp: Scalar = None


class MappingBody(Struct, rename="camel", gc=False):
    topic: Scalar = None
    bname: Scalar = None
    total_queues: Scalar = None
    epoch: Scalar = None
    dirty: Any = None
    scope: Scalar = None
    curr_id_map: dict[str, Scalar] | Absent = None


class QueueDataBody(Struct, rename="camel"):
    broker_name: Scalar = None
    read_queue_nums: Scalar = None
    write_queue_nums: Scalar = None
    perm: Scalar = None
    topic_sys_flag: Scalar = None


class RouteBody(Struct, rename="camel"):
    queue_datas: list[QueueDataBody | None] | QueueDataBody | None = None
    """RocketMQ takes an object for a list of one."""


DATA_VERSION: Final = msgspec.json.Decoder(DataVersionBody | Absent)
_ROUTE: Final = msgspec.json.Decoder(RouteBody | Absent)

_NO_QUEUES: Final = QueueData(0, 0, 0, 0)


def data_version_of(body: DataVersionBody | str | None, *, now_ms: int) -> DataVersion | None:
    """None when the broker sent null: then every registration counts as changed, as in RocketMQ."""
    if not isinstance(body, DataVersionBody):
        return None
    return DataVersion(
        state_version=int64("stateVersion", body.state_version, absent=0),
        timestamp=int64("timestamp", body.timestamp, absent=now_ms),
        counter=int64("counter", body.counter, absent=0),
    )


def queue_data_of(read: object, write: object, perm: object, flags: object, *, defaults: QueueData) -> QueueData:
    return QueueData(
        read_queues=int32("readQueueNums", read, absent=defaults.read_queues),
        write_queues=int32("writeQueueNums", write, absent=defaults.write_queues),
        perm=int32("perm", perm, absent=defaults.perm),
        flags=int32("topicSysFlag", flags, absent=defaults.flags),
    )


def mapping_of(body: MappingBody | None, *, topic: str | None) -> TopicMapping:
    """`topic` is the key that held the mapping. A mapping without topic or host broker is refused; RocketMQ fails on it
    after it has stored half of the registration.
    """
    bname = text("bname", body.bname) if body else None
    own_topic = text("topic", body.topic) if body else None
    named = topic if own_topic is None else own_topic
    if body is None or bname is None or named is None:
        raise JsonShapeError("topicQueueMappingInfo", body, "an object with topic and bname")
    scope = text("scope", body.scope)
    rest = {} if scope is None else {"scope": scope}
    return TopicMapping(
        topic=named,
        bname=bname,
        total_queues=int32("totalQueues", body.total_queues, absent=0),
        epoch=int64("epoch", body.epoch, absent=0),
        dirty=flag(body.dirty),
        current_ids=_current_ids(body.curr_id_map or {}),
        **rest,
    )


def _current_ids(body: Mapping[str, Scalar]) -> tuple[tuple[int, int], ...]:
    if "" in body or None in body.values():
        raise JsonShapeError("currIdMap", body, "numbers to numbers")
    ids = {
        int32("key of currIdMap", logical, absent=0): int32("value of currIdMap", physical, absent=0)
        for logical, physical in body.items()
    }
    return tuple(sorted(ids.items()))


def filters_of(body: FiltersBody) -> tuple[str, ...] | None:
    """None leaves the stored list alone, an empty list removes it. RocketMQ reads a single text as a list of one."""
    if body is None:
        return None
    if isinstance(body, str):
        body = [body] if body else []
    texts = (text("filterServerList", item) for item in body)
    return tuple(item for item in texts if item is not None)


def read_data_version(body: bytes, *, now_ms: int) -> DataVersion | None:
    """Of QUERYDATA_VERSION (322). None: no body, or a null one, which differs from every stored version."""
    return data_version_of(read_json(body, DATA_VERSION), now_ms=now_ms)


def read_queue_datas(body: bytes) -> tuple[tuple[str, QueueData], ...]:
    """Of REGISTER_TOPIC_IN_NAMESRV (217): broker names and queues, in the order of the body, on which the rules depend.

    Nothing but `queueDatas` is read. An entry without a broker name gets the name "", which no broker has.
    """
    route = read_json(body, _ROUTE) if body else None
    entries = route.queue_datas if isinstance(route, RouteBody) else None
    if not isinstance(entries, list):
        entries = [] if entries is None else [entries]
    return tuple(_queue_data_entry(entry or QueueDataBody()) for entry in entries)


def _queue_data_entry(entry: QueueDataBody) -> tuple[str, QueueData]:
    queues = queue_data_of(
        entry.read_queue_nums, entry.write_queue_nums, entry.perm, entry.topic_sys_flag, defaults=_NO_QUEUES
    )
    return text("brokerName", entry.broker_name) or "", queues
