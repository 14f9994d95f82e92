"""The JSON header: written as the reference writes it, read as leniently as real peers need.

Peers differ in the order of the keys, add keys of their own, quote numbers, leave numbers of the ext fields unquoted
and name languages that we do not know. What none was seen to send in a header, unquoted keys and single quotes, is
refused.
"""

import json
import re
import struct
from decimal import Decimal
from typing import Any, Never

from routebook.wire.codes import RESPONSE_FLAG, Language
from routebook.wire.command import UNMATCHABLE_OPAQUE, Command, Ext, Request, Response
from routebook.wire.protocol_error import PeerProtocolError, Violation

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
