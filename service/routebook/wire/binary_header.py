"""The ROCKETMQ header: numbers of fixed width, then the remark and the ext fields, each with its length before it.

2 code · 1 language · 2 version · 4 opaque · 4 flag · 4 length of the remark, remark
4 length of the ext fields; each of them: 2 length of the name, name, 4 length of the value, value
"""

from struct import Struct

from routebook.wire.codes import RESPONSE_FLAG, Language
from routebook.wire.command import Command, Ext, Request, Response
from routebook.wire.protocol_error import OwnProtocolError, PeerProtocolError, Violation

FIXED = Struct(">hbhiii")
"""Up to the length of the remark, and with it."""
WRITTEN_FIXED = Struct(">HbHiii")
"""The sender cuts a code or a version to 16 bits, whatever their sign: as the reference does."""
LENGTH = Struct(">i")
NAME_LENGTH = Struct(">h")
LARGEST_NAME = 2**15 - 1
SMALLEST_HEADER = FIXED.size + LENGTH.size
LANGUAGES = {int(language): language for language in Language}


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
        LANGUAGES.get(language, Language.OTHER),
        flag,
        _text(header[FIXED.size : remark_end]) if remark_length else None,
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
            ext[_text(name)] = _text(header[at : at + length])
        at += length
    return ext


def _check(what: str, length: int, available: int) -> None:
    if not 0 <= length <= available:
        raise _too_short(what, length, available)


def _too_short(what: str, length: int, available: int) -> PeerProtocolError:
    return PeerProtocolError(
        Violation.BINARY_HEADER, f"A binary header's {what} has {length} bytes where {available} are left."
    )


def _text(text: bytes) -> str:
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
