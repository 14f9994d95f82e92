"""The header of a frame: two encodings, and the typed values of the ext fields.

JSON is written as RocketMQ writes it, and read as leniently as real peers need: any order of keys, unknown keys, quoted
numbers, numbers in ext fields, unknown languages. Unquoted keys and single quotes, which no peer sends in a header, are
refused.

The ROCKETMQ encoding has numbers of fixed width, then the remark and the ext fields, each with its length before it:

    2 code · 1 language · 2 version · 4 opaque · 4 flag · 4 length of the remark, remark
    4 length of the ext fields; for each: 2 length of the name, name, 4 length of the value, value

All values of ext fields are texts. Reading them never fails: an absent field, and one that cannot be parsed, both read
as the default, as in RocketMQ. The handler of a request decides what an absent field means.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from struct import Struct
from typing import Any, Never, TypeVar

from routebook.protocol.frame import (
    HEADER_WORD_BYTES,
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    PREFIX,
    RESPONSE_FLAG,
    UNMATCHABLE_OPAQUE,
    Command,
    Ext,
    Frame,
    HeaderEncoding,
    Language,
    OwnProtocolError,
    PeerProtocolError,
    Request,
    Response,
    ResponseCode,
    Violation,
    frame_head,
)

Default = TypeVar("Default", int, None)

JAVA_INTEGER = re.compile(r"(?P<sign>[+-]?)0*(?P<digits>\d{1,19})")
"""No blanks, no underscores. Longer numbers do not fit 64 bits, and Python refuses to convert thousands of digits."""
INT_BITS = 32
LONG_BITS = 64


def read_text(ext: Mapping[str, str] | None, name: str) -> str | None:
    return ext.get(name) if ext else None


def read_int(ext: Mapping[str, str] | None, name: str, default: Default) -> int | Default:
    """A Java int."""
    return _read_integer(ext, name, default, INT_BITS)


def read_long(ext: Mapping[str, str] | None, name: str, default: Default) -> int | Default:
    """A Java long. The default is None for a field declared with the boxed type, and 0 for one with the plain type."""
    return _read_integer(ext, name, default, LONG_BITS)


def _read_integer(ext: Mapping[str, str] | None, name: str, default: Default, bits: int) -> int | Default:
    text = ext.get(name) if ext else None
    found = JAVA_INTEGER.fullmatch(text) if text else None
    if not found:
        return default
    value = int(found["sign"] + found["digits"])
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else default


def read_boolean(ext: Mapping[str, str] | None, name: str, default: bool = False) -> bool:
    """True for `true` in any letter case. Every other text is false; only an absent field has the default."""
    text = ext.get(name) if ext else None
    return default if text is None else text.lower() == "true"


def write_fields(fields: Mapping[str, str | int | bool | None]) -> Ext:
    """The ext fields of a typed header, without absent values."""
    return {name: _write(value) for name, value in fields.items() if value is not None}


def _write(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


LARGEST_INT = 2**31 - 1
QUOTED_NUMBER = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?")
FOUR_INTS = struct.Struct(">iiii")
"""Packing fails for a number of more than 32 bits, which is the quickest check."""
LANGUAGES = {language.name: language for language in Language}


def refuse_constant(word: str) -> Never:
    raise ValueError(f"{word} is not JSON")


READER = json.JSONDecoder(strict=False, parse_float=Decimal, parse_constant=refuse_constant)
"""Accepts raw line feeds inside texts, as Java does. A float keeps its digits, because it may become a text."""
WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def decode_json_header(header: bytes, body: bytes) -> Command:
    try:
        text = header.decode().strip()
        command = _read(_parse(text), body)
        return _without_lone_surrogates(command) if "\\u" in text else command
    except (ValueError, ArithmeticError, RecursionError) as problem:
        # Invalid JSON or UTF-8, an integer with thousands of digits, or endless nesting.
        reason = str(problem)[:200]
    # Raised outside of the handler, so that the error does not keep the previous one, and with it the whole input.
    raise PeerProtocolError(Violation.JSON_HEADER, f"A JSON header cannot be read: {reason}.")


def _parse(text: str) -> dict[str, Any]:
    # `decode` would search for white space two more times.
    fields, end = READER.raw_decode(text)
    if end != len(text):
        raise ValueError(f"something follows the object, at {end}")
    if not isinstance(fields, dict):
        raise ValueError(f"an object was expected, not {type(fields).__name__}")
    return fields


def _read(fields: dict[str, Any], body: bytes) -> Command:
    get = fields.get
    code, opaque = get("code", 0), get("opaque", UNMATCHABLE_OPAQUE)
    version, flag = get("version", 0), get("flag", 0)
    if not type(code) is type(opaque) is type(version) is type(flag) is int:
        code, opaque = _integer("code", code, 0), _integer("opaque", opaque, UNMATCHABLE_OPAQUE)
        version, flag = _integer("version", version, 0), _integer("flag", flag, 0)
    try:
        FOUR_INTS.pack(code, opaque, version, flag)
    except struct.error:
        raise ValueError("a number has more than 32 bits") from None
    kind: type[Request | Response] = Response if flag & RESPONSE_FLAG else Request
    language = get("language", "JAVA")
    remark = get("remark")
    return kind(
        code,
        opaque,
        _ext(get("extFields")),
        body,
        version,
        Language.JAVA if language == "JAVA" else _language(language),
        flag,
        remark if remark is None else _text(remark),
    )


def _integer(name: str, value: object, default: int) -> int:
    if value in (None, "", "null"):
        return default
    return value if type(value) is int else _lenient_integer(name, value)


def _lenient_integer(name: str, value: object) -> int:
    if isinstance(value, str) and QUOTED_NUMBER.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, Decimal) and abs(value) <= LARGEST_INT:
        return int(value)
    if isinstance(value, int):  # Also true and false, as 1 and 0.
        return int(value)
    raise ValueError(f"{name} is not a number")


def _language(value: object) -> Language:
    if isinstance(value, str):
        return LANGUAGES.get(value, Language.OTHER)
    if isinstance(value, int) and 0 <= value < len(Language):
        return Language(value)
    return Language.OTHER


def _ext(value: object) -> Ext | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("extFields is not an object")
    for one in value.values():
        if type(one) is not str:
            return {name: _text(one) for name, one in value.items() if one is not None}
    return value


def _text(value: object) -> str:
    """The text that Java makes of a value that is not a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _without_lone_surrogates(command: Command) -> Command:
    r"""Replaces halves of \u pairs by "?", as Java does. They are legal in JSON, but can be neither stored nor sent."""
    ext, remark = command.ext, command.remark
    return command._replace(
        ext=ext and {_unicode(name): _unicode(value) for name, value in ext.items()},
        remark=remark and _unicode(remark),
    )


def _unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def encode_json_header(command: Command) -> bytes:
    """Keys in alphabetical order, without absent texts; ext fields in the given order."""
    code, opaque, ext, _, version, language, flag, remark = command
    ext_fields = "" if ext is None else f'"extFields":{WRITER.encode(ext)},'
    remark_field = "" if remark is None else f'"remark":{WRITER.encode(remark)},'
    return (
        f'{{"code":{code:d},{ext_fields}"flag":{flag:d},"language":"{language.name}","opaque":{opaque:d},'
        f'{remark_field}"serializeTypeCurrentRPC":"JSON","version":{version:d}}}'
    ).encode("utf-8", "replace")


FIXED = Struct(">hbhiii")
"""Up to and including the length of the remark."""
WRITTEN_FIXED = Struct(">HbHiii")
"""Code and version are truncated to 16 bits, whatever their sign, as by RocketMQ."""
LENGTH = Struct(">i")
NAME_LENGTH = Struct(">h")
LARGEST_NAME = 2**15 - 1
SMALLEST_HEADER = FIXED.size + LENGTH.size
LANGUAGES_BY_NUMBER = {int(language): language for language in Language}


def decode_binary_header(header: bytes, body: bytes) -> Command:
    """Bytes after the ext fields are ignored, as by RocketMQ."""
    if len(header) < SMALLEST_HEADER:
        raise _too_short("header", SMALLEST_HEADER, len(header))
    code, language, version, opaque, flag, remark_length = FIXED.unpack_from(header)
    remark_end = FIXED.size + remark_length
    _check("remark", remark_length, len(header) - SMALLEST_HEADER)
    (ext_length,) = LENGTH.unpack_from(header, remark_end)
    begin = remark_end + LENGTH.size
    _check("ext block", max(0, ext_length), len(header) - begin)  # A negative length means no fields, as in RocketMQ.
    kind: type[Request | Response] = Response if flag & RESPONSE_FLAG else Request
    return kind(
        code,
        opaque,
        _read_ext(header, begin, begin + ext_length) if ext_length > 0 else None,
        body,
        version,
        LANGUAGES_BY_NUMBER.get(language, Language.OTHER),
        flag,
        _decode_text(header[FIXED.size : remark_end]) if remark_length else None,
    )


def _read_ext(header: bytes, at: int, end: int) -> Ext:
    """An empty text means an absent one in this encoding. An entry without name or value is ignored."""
    ext: Ext = {}
    while at < end:
        _check("name's length", NAME_LENGTH.size, end - at)
        (length,) = NAME_LENGTH.unpack_from(header, at)
        at += NAME_LENGTH.size
        _check("name", length, end - at)
        name = header[at : at + length]
        at += length
        _check("value's length", LENGTH.size, end - at)
        (length,) = LENGTH.unpack_from(header, at)
        at += LENGTH.size
        _check("value", length, end - at)
        if name and length:
            ext[_decode_text(name)] = _decode_text(header[at : at + length])
        at += length
    return ext


def _check(what: str, length: int, available: int) -> None:
    if not 0 <= length <= available:
        raise _too_short(what, length, available)


def _too_short(what: str, length: int, available: int) -> PeerProtocolError:
    return PeerProtocolError(
        Violation.BINARY_HEADER, f"A binary header's {what} has {length} bytes where {available} are left."
    )


def _decode_text(text: bytes) -> str:
    """As in Java, bytes that are not UTF-8 become the replacement character."""
    return text.decode("utf-8", "replace")


def encode_binary_header(command: Command) -> bytes:
    code, opaque, ext, _, version, language, flag, remark = command
    remark_bytes = (remark or "").encode("utf-8", "replace")
    ext_block = b"".join(_entry(name, value) for name, value in ext.items()) if ext else b""
    fixed = WRITTEN_FIXED.pack(code & 0xFFFF, language, version & 0xFFFF, opaque, flag, len(remark_bytes))
    return b"".join((fixed, remark_bytes, LENGTH.pack(len(ext_block)), ext_block))


def _entry(name: str, value: str) -> bytes:
    name_bytes = name.encode("utf-8", "replace")
    value_bytes = value.encode("utf-8", "replace")
    if len(name_bytes) > LARGEST_NAME:
        raise OwnProtocolError(
            Violation.MISUSE, f"A binary header has no room for the name of {len(name_bytes)} bytes of an ext field."
        )
    return NAME_LENGTH.pack(len(name_bytes)) + name_bytes + LENGTH.pack(len(value_bytes)) + value_bytes


def decode_command(frame: Frame) -> Command:
    encoding, header, body = frame
    if encoding is HeaderEncoding.JSON:
        return decode_json_header(header, body)
    return decode_binary_header(header, body)


def encode_command(
    command: Command, encoding: HeaderEncoding = HeaderEncoding.JSON, max_frame_bytes: int = MAX_FRAME_BYTES
) -> bytes:
    """The whole frame."""
    return encode_head(command, len(command.body), encoding, max_frame_bytes) + command.body


def encode_head(
    command: Command,
    body_length: int,
    encoding: HeaderEncoding = HeaderEncoding.JSON,
    max_frame_bytes: int = MAX_FRAME_BYTES,
) -> bytes:
    """The frame without its body, for a body that is cached and shared."""
    header = encode_json_header(command) if encoding is HeaderEncoding.JSON else encode_binary_header(command)
    return frame_head(encoding, header, body_length, max_frame_bytes)


@cache
def success_head_encoder(
    version: int, encoding: HeaderEncoding, max_frame_bytes: int
) -> Callable[[bytes, int], bytes | None]:
    """Returns a function that encodes the head of a successful answer without fields and remark. Only the opaque number
    and the lengths vary, so the rest is encoded once. The function returns None if `encode_head` has to be used.
    """
    any_opaque = 1_234_567_890
    response = Response(ResponseCode.SUCCESS, any_opaque, version=version)
    template = encode_json_header(response).replace(b"%d" % any_opaque, b"%b")
    pack = PREFIX.pack
    longest = max_frame_bytes - LENGTH_BYTES if encoding is HeaderEncoding.JSON else -1

    def head(opaque: bytes, body_length: int) -> bytes | None:
        header = template % opaque
        header_length = len(header)
        length = HEADER_WORD_BYTES + header_length + body_length
        return pack(length, header_length) + header if length <= longest else None

    return head
