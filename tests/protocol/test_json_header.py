"""JSON headers are read as differently as real peers write them; invalid ones are refused."""

from contextlib import suppress
from typing import Any

import pytest

from routebook.protocol.frame import (
    UNMATCHABLE_OPAQUE,
    Command,
    Language,
    PeerProtocolError,
    Request,
    Response,
    Violation,
)
from routebook.protocol.headers import decode_json_header, encode_json_header


def read(text: str | bytes) -> Command:
    return decode_json_header(text.encode() if isinstance(text, str) else text, b"")


def test_an_empty_object_has_rocketmqs_defaults() -> None:
    assert read("{}") == Request(0, UNMATCHABLE_OPAQUE, None, b"", 0, Language.JAVA, 0, None)


@pytest.mark.parametrize("text", ["null", '""', '"null"'])
@pytest.mark.parametrize("name", ["code", "version", "opaque", "flag"])
def test_an_empty_number_counts_as_absent(name: str, text: str) -> None:
    assert read(f'{{"{name}":{text}}}') == read("{}")


@pytest.mark.parametrize("name", ["code", "language", "version", "opaque", "flag", "remark", "extFields"])
def test_null_counts_as_absent(name: str) -> None:
    expected = read("{}")
    if name == "language":
        expected = expected._replace(language=Language.OTHER)
    assert read(f'{{"{name}":null}}') == expected


def test_the_order_of_keys_is_free_and_unknown_keys_are_ignored() -> None:
    text = '{"version":401,"x":{"y":[1]},"opaque":-7,"extFields":{"topic":"T"},"hashCode":3,"code":105}'
    assert read(text) == Request(105, -7, {"topic": "T"}, version=401)


@pytest.mark.parametrize("text", ['"105"', "105", "105.0", '"+105"', "1.05e2", '"0105"', '"105.0"', "105.7"])
def test_numbers_may_be_quoted(text: str) -> None:
    assert read(f'{{"code":{text},"opaque":{text}}}') == Request(105, 105, version=0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1", "1"),
        ("-1", "-1"),
        ("true", "true"),
        ("false", "false"),
        ("1.50", "1.50"),
        ("12345678901234567890", "12345678901234567890"),
        ('""', ""),
        ('{"a":[1,"ä"]}', '{"a":[1,"ä"]}'),
    ],
)
def test_ext_values_become_texts(value: str, text: str) -> None:
    assert read(f'{{"extFields":{{"topic":"T","x":{value}}}}}').ext == {"topic": "T", "x": text}


def test_a_null_ext_value_counts_as_absent() -> None:
    assert read('{"extFields":{"topic":null,"a":"b"}}').ext == {"a": "b"}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ('"GO"', Language.GO),
        ('"NODE_JS"', Language.NODE_JS),
        ('"COBOL"', Language.OTHER),
        ('"java"', Language.OTHER),
        ("12", Language.RUST),
        ("99", Language.OTHER),
        ("-1", Language.OTHER),
        ("[]", Language.OTHER),
    ],
)
def test_an_unknown_language_is_accepted(text: str, language: Language) -> None:
    assert read(f'{{"language":{text}}}').language is language


def test_the_serialization_named_in_the_header_is_ignored() -> None:
    assert read('{"code":105,"serializeTypeCurrentRPC":"ROCKETMQ"}').code == 105


@pytest.mark.parametrize(
    ("flag", "kind", "oneway"),
    [
        (0, Request, False),
        (1, Response, False),
        (2, Request, True),
        (3, Response, True),
        (4, Request, False),
        (-2, Request, True),
    ],
)
def test_only_two_bits_of_the_flag_have_a_meaning(flag: int, kind: type, oneway: bool) -> None:
    command = read(f'{{"flag":{flag}}}')
    assert type(command) is kind
    assert command.flag == flag
    if isinstance(command, Request):
        assert command.is_oneway is oneway


def test_surrounding_white_space_and_control_characters_in_texts_are_accepted() -> None:
    assert read(' \n{"remark":"a\nb\tc"} \r\n').remark == "a\nb\tc"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "105",
        '"{}"',
        "{",
        "{}{}",
        "{} x",
        '{"code":}',
        '{"code":NaN}',
        '{"x":Infinity}',
        '{"code":"1O5"}',
        '{"code":" 105"}',
        '{"code":[]}',
        '{"opaque":2147483648}',
        '{"opaque":"-2147483649"}',
        '{"opaque":1e99}',
        '{"opaque":1e999999999999999999999}',
        '{"version":' + "9" * 5000 + "}",
        '{"version":"' + "9" * 5000 + '"}',
        '{"extFields":"topic"}',
        '{"extFields":[]}',
        "{code:105}",
        "{'code':105}",
        "[" * 100_000,
        '{"x":' * 50_000,
        '{"remark":"\\ud8"}',
        b"\xff\xfe{}",
        b'{"remark":"\xc3"}',
        b'{"remark":"\xed\xa0\x80"}',
        b"\0" * 100,
    ],
    ids=lambda text: repr(text[:40]),
)
def test_an_invalid_header_is_refused(text: str | bytes) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        read(text)
    assert caught.value.violation is Violation.JSON_HEADER
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("depth", range(50, 3_000, 50))
def test_nesting_of_any_depth_is_read_or_refused(depth: int) -> None:
    """The depth that Python can follow depends on the caller, and differs for reading, converting and writing."""
    with suppress(PeerProtocolError):
        assert read('{"extFields":{"x":' + "[" * depth + '"\\ud800"' + "]" * depth + "}}").ext is not None


def test_half_of_a_surrogate_pair_becomes_a_question_mark() -> None:
    command = read('{"remark":"\\ud83d","extFields":{"topic":"a\\udc00b","whole":"\\ud83d\\ude00","list":["\\ud800"]}}')
    assert command.remark == "?"
    assert command.ext == {"topic": "a?b", "whole": "😀", "list": '["?"]'}


@pytest.mark.parametrize(
    "change",
    [{"remark": "\ud800"}, {"ext": {"value\udfff": "\ud800"}}],
)
def test_our_own_texts_can_always_be_written(change: dict[str, Any]) -> None:
    assert b"?" in encode_json_header(Response(0, 1)._replace(**change))


def test_texts_are_escaped_only_where_json_requires_it() -> None:
    header = encode_json_header(Response(1, 1, remark='a"b\\c\nd/ä\u0001'))
    assert '"remark":"a\\"b\\\\c\\nd/ä\\u0001"'.encode() in header
