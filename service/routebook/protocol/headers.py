"""Reading and writing the typed values of ext fields, all of which travel as text.

Nothing here refuses: an absent field and one that does not parse both read as the default, as in the reference, where
"required" is only a word. What an absent field then means is told per request, by its handler.

The JSON header: written as the reference writes it, read as leniently as real peers need.

Peers differ in the order of the keys, add keys of their own, quote numbers, leave numbers of the ext fields unquoted
and name languages that we do not know. What none was seen to send in a header, unquoted keys and single quotes, is
refused.

The ROCKETMQ header: numbers of fixed width, then the remark and the ext fields, each with its length before it.

2 code · 1 language · 2 version · 4 opaque · 4 flag · 4 length of the remark, remark
4 length of the ext fields; each of them: 2 length of the name, name, 4 length of the value, value

From frame to command and back, by the encoding that the frame names.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from struct import Struct
from typing import Any, Never, TypeVar

from routebook.protocol.command import (
    RESPONSE_FLAG,
    UNMATCHABLE_OPAQUE,
    Command,
    Ext,
    HeaderEncoding,
    Language,
    Request,
    Response,
    ResponseCode,
)
from routebook.protocol.frame import (
    HEADER_WORD_BYTES,
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    PREFIX,
    Frame,
    OwnProtocolError,
    PeerProtocolError,
    Violation,
    frame_head,
)

Default = TypeVar("Default", int, None)

JAVA_INTEGER = re.compile(r"(?P<sign>[+-]?)0*(?P<digits>\d{1,19})")
"""No blanks, no underscores. Longer ones cannot fit 64 bits; Python refuses to read those of thousands of digits."""
INT_BITS = 32
LONG_BITS = 64


def read_text(ext: Mapping[str, str] | None, name: str) -> str | None:
    return ext.get(name) if ext else None


def read_int(ext: Mapping[str, str] | None, name: str, default: Default) -> int | Default:
    """A Java int."""
    return _read_integer(ext, name, default, INT_BITS)


def read_long(ext: Mapping[str, str] | None, name: str, default: Default) -> int | Default:
    """A Java long. A field declared with the boxed type has None for its default, one with the plain type 0."""
    return _read_integer(ext, name, default, LONG_BITS)


def _read_integer(ext: Mapping[str, str] | None, name: str, default: Default, bits: int) -> int | Default:
    text = ext.get(name) if ext else None
    found = JAVA_INTEGER.fullmatch(text) if text else None
    if not found:
        return default
    value = int(found["sign"] + found["digits"])
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else default


def read_boolean(ext: Mapping[str, str] | None, name: str, default: bool = False) -> bool:
    """`true` in letters of any case is true; every other text is false, not the default."""
    text = ext.get(name) if ext else None
    return default if text is None else text.lower() == "true"


def write_fields(fields: Mapping[str, str | int | bool | None]) -> Ext:
    """The ext fields of a typed header. Absent values are left out; a header all of whose values are absent is {}."""
    return {name: _write(value) for name, value in fields.items() if value is not None}


def _write(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


LARGEST_INT = 2**31 - 1
QUOTED_NUMBER = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?")
FOUR_INTS = struct.Struct(">iiii")
"""For its refusal of what is longer than 32 bits: the quickest way to ask."""
LANGUAGES = {language.name: language for language in Language}


def refuse_constant(word: str) -> Never:
    raise ValueError(f"{word} is not JSON")


READER = json.JSONDecoder(strict=False, parse_float=Decimal, parse_constant=refuse_constant)
"""Raw line feeds inside of texts pass, as they do in Java; a float keeps its digits, for the text of an ext field."""
WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def decode_json_header(header: bytes, body: bytes) -> Command:
    try:
        text = header.decode().strip()
        command = _read(_parse(text), body)
        return _without_lone_surrogates(command) if "\\u" in text else command
    except (ValueError, ArithmeticError, RecursionError) as problem:
        # JSON that is none, text that is not UTF-8, an integer of thousands of digits, nesting without end.
        reason = str(problem)[:200]
    # Raised out here, the error does not hold on to the one before it, and by that to the whole input.
    raise PeerProtocolError(Violation.JSON_HEADER, f"A JSON header cannot be read: {reason}.")


def _parse(text: str) -> dict[str, Any]:
    # `decode` would search for white space twice more.
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
    """What Java makes of a value that should have been a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _without_lone_surrogates(command: Command) -> Command:
    r"""Half a \u pair is legal JSON and no Unicode text: it could be neither stored nor sent. Java, too, writes "?"."""
    ext, remark = command.ext, command.remark
    return command._replace(
        ext=ext and {_unicode(name): _unicode(value) for name, value in ext.items()},
        remark=remark and _unicode(remark),
    )


def _unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def encode_json_header(command: Command) -> bytes:
    """Keys in the order of the alphabet, absent texts left out; ext fields in the order they are given."""
    code, opaque, ext, _, version, language, flag, remark = command
    ext_fields = "" if ext is None else f'"extFields":{WRITER.encode(ext)},'
    remark_field = "" if remark is None else f'"remark":{WRITER.encode(remark)},'
    return (
        f'{{"code":{code:d},{ext_fields}"flag":{flag:d},"language":"{language.name}","opaque":{opaque:d},'
        f'{remark_field}"serializeTypeCurrentRPC":"JSON","version":{version:d}}}'
    ).encode("utf-8", "replace")


FIXED = Struct(">hbhiii")
"""Up to the length of the remark, and with it."""
WRITTEN_FIXED = Struct(">HbHiii")
"""The sender cuts a code or a version to 16 bits, whatever their sign: as the reference does."""
LENGTH = Struct(">i")
NAME_LENGTH = Struct(">h")
LARGEST_NAME = 2**15 - 1
SMALLEST_HEADER = FIXED.size + LENGTH.size
LANGUAGES_binary_header = {int(language): language for language in Language}


def decode_binary_header(header: bytes, body: bytes) -> Command:
    """Bytes after the ext fields are tolerated, as in the reference."""
    if len(header) < SMALLEST_HEADER:
        raise _too_short("header", SMALLEST_HEADER, len(header))
    code, language, version, opaque, flag, remark_length = FIXED.unpack_from(header)
    remark_end = FIXED.size + remark_length
    _check("remark", remark_length, len(header) - SMALLEST_HEADER)
    (ext_length,) = LENGTH.unpack_from(header, remark_end)
    begin = remark_end + LENGTH.size
    _check("ext block", max(0, ext_length), len(header) - begin)  # A negative one counts as none in the reference.
    kind: type[Request | Response] = Response if flag & RESPONSE_FLAG else Request
    return kind(
        code,
        opaque,
        _read_ext(header, begin, begin + ext_length) if ext_length > 0 else None,
        body,
        version,
        LANGUAGES_binary_header.get(language, Language.OTHER),
        flag,
        _text_of_binary_header(header[FIXED.size : remark_end]) if remark_length else None,
    )


def _read_ext(header: bytes, at: int, end: int) -> Ext:
    """A text of no bytes is an absent one here, not an empty one; an entry without name or value does not count."""
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
            ext[_text_of_binary_header(name)] = _text_of_binary_header(header[at : at + length])
        at += length
    return ext


def _check(what: str, length: int, available: int) -> None:
    if not 0 <= length <= available:
        raise _too_short(what, length, available)


def _too_short(what: str, length: int, available: int) -> PeerProtocolError:
    return PeerProtocolError(
        Violation.BINARY_HEADER, f"A binary header's {what} has {length} bytes where {available} are left."
    )


def _text_of_binary_header(text: bytes) -> str:
    """Java's way with bytes that are not UTF-8."""
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
    """The frame without its body: for a body that is cached and only joined when it is written."""
    header = encode_json_header(command) if encoding is HeaderEncoding.JSON else encode_binary_header(command)
    return frame_head(encoding, header, body_length, max_frame_bytes)


@cache
def success_head_encoder(
    version: int, encoding: HeaderEncoding, max_frame_bytes: int
) -> Callable[[bytes, int], bytes | None]:
    """Made once: of a success without fields and remark only the opaque varies, and the lengths."""
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
