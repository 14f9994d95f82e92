"""JSON bodies: what is accepted, and the limits."""

import json
import time
from contextlib import suppress

import pytest

from routebook.protocol.body_json import (
    ANY_JSON,
    LONGEST_NUMBER,
    MAX_JSON_VALUES,
    MAX_LENIENT_BYTES,
    MAX_LENIENT_DEPTH,
    BodyError,
    JsonLimitError,
    JsonSyntaxError,
    decode_standard,
    parse_leniently,
    read_json,
)


def read(body: bytes) -> object:
    return read_json(body, ANY_JSON)


@pytest.mark.parametrize("body", [b"", b"null", b" \r\n\tnull ", b"   ", b"\xff", b'{"a":"\xc3"}', b"\xed\xa0\x80"])
def test_null_blank_and_invalid_utf_8_bodies_are_null(body: bytes) -> None:
    assert read(body) is None


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ('{"a":1,"a":2}', {"a": 2}),
        ("{0:0,2:1}", {"0": 0, "2": 1}),
        ('{"currIdMap":{0:0,2:1},"x":"{0:0}"}', {"currIdMap": {"0": 0, "2": 1}, "x": "{0:0}"}),
        ('{"x":", 1:\\"{2:","y":{ -3 : 1 , 4\n:2}}', {"x": ', 1:"{2:', "y": {"-3": 1, "4": 2}}),
        ("{'a':'it''s'}", None),
        ("{'a':'it\\'s \"so\"'}", {"a": 'it\'s "so"'}),
        ('{a:1,b_2:"x",c.d:[true,false,null]}', {"a": 1, "b_2": "x", "c.d": [True, False, None]}),
        ("{a:1,}", {"a": 1}),
        ("[1,2,]", [1, 2]),
        ("[+1,-2,007,1.5,.5,5.,1e2]", [1, -2, 7, 1.5, 0.5, 5.0, 100.0]),
        ("{'a':'\\u00e4\\ud83d\\ude00\\n\\/'}", {"a": "ä😀\n/"}),
        ('{"a":"line\nfeed\ttab"}', {"a": "line\nfeed\ttab"}),
        ("{}", {}),
        ("[]", []),
        ("{'a':{},b:[],c:[[{}]]}", {"a": {}, "b": [], "c": [[{}]]}),
        ("'text'", "text"),
        ("+5", 5),
    ],
)
def test_json_that_rocketmq_accepts_is_accepted(body: str, value: object) -> None:
    if value is None:
        with pytest.raises(JsonSyntaxError):
            read(body.encode())
    else:
        assert read(body.encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[",
        '"',
        "'",
        "{]",
        "[}",
        "{a}",
        "{a:}",
        "{:1}",
        "{,}",
        "[,]",
        "{a:1,,b:2}",
        "[1 2]",
        "{a:1 b:2}",
        "{a:b}",
        "{} {}",
        "{} x",
        "NaN",
        "[Infinity]",
        "[-Infinity]",
        "{'a':'\\q'}",
        "{'a':'\\u00'}",
        "{a:'x",
        "0x10",
        "--1",
        ":",
        "{{}:1}",
        "\ufeff{}",
    ],
)
def test_text_that_is_not_even_lenient_json_is_refused(body: str) -> None:
    with pytest.raises(JsonSyntaxError):
        read(body.encode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[{"b":"x"}], \n 2 :{3:"{4",-5:6}}',
        b'{"a":"10.0.0.1:30000, 7","currIdMap":{0:0}}',
    ],
)
def test_integer_keys_are_read_without_the_lenient_parser(body: bytes) -> None:
    assert decode_standard(body, ANY_JSON) == parse_leniently(body.decode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"a{1:":"\\\\",2:"{3:\\"{4:",5 :[{6:{7:0}},8,9]}',
        b'{"a":", 1:",2:0}',
        b'{"a":"{-1:",2:0}',
        b'{"a":"\\",1:",2:0}',
    ],
)
def test_a_text_that_holds_something_like_an_integer_key_is_never_misread(body: bytes) -> None:
    with pytest.raises(Exception, match="malformed"):
        decode_standard(body, ANY_JSON)
    assert read(body) == parse_leniently(body.decode())


def test_depth_is_limited() -> None:
    deepest = MAX_LENIENT_DEPTH
    assert parse_leniently("[" * deepest + "]" * deepest)
    with pytest.raises(JsonLimitError):
        parse_leniently("[" * (deepest + 1) + "]" * (deepest + 1))
    for opening in (b"[", b'{"a":', b"{a:", b"{1:", b"{'a':["):
        with pytest.raises(BodyError):
            read(opening * 200_000)


def test_the_number_of_values_is_limited() -> None:
    with pytest.raises(JsonLimitError):
        read(b"[" + b"0," * (MAX_JSON_VALUES + 1) + b"0]")


def test_a_long_body_that_only_the_lenient_parser_could_read_is_refused() -> None:
    short = "{'a':'" + "x" * (MAX_LENIENT_BYTES - 100) + "'}"
    assert isinstance(read(short.encode()), dict)
    with pytest.raises(JsonSyntaxError):
        read(short.replace("x", "xx").encode())


def test_a_long_table_with_integer_keys_is_read() -> None:
    text = json.dumps({"x" * 100 + str(number): {"topicName": "T"} for number in range(20_000)})
    assert len(text) > MAX_LENIENT_BYTES
    value = read(f'{{"table":{text},"currIdMap":{{0:0,2:1}}}}'.encode())
    assert isinstance(value, dict)
    assert value["currIdMap"] == {"0": 0, "2": 1}


def test_numbers_with_too_many_digits_are_texts() -> None:
    digits = "9" * (LONGEST_NUMBER + 1)
    assert parse_leniently(f"[{digits}]") == [digits]
    assert read(f"[{digits}]".encode()) == [digits]


@pytest.mark.parametrize("size", [MAX_LENIENT_BYTES - 20, 4 * 1024 * 1024])
@pytest.mark.parametrize("before", ["{", '{"a":', "['", "{a:"])
@pytest.mark.parametrize(
    "piece", ['"\\', "{1:", ",1", '"', " ", "'\\u0041", "\\", "[],", "{'a':", "9", "-", "{a:1,", "1:", "1.", "e", ".1"]
)
def test_no_malformed_body_takes_long(size: int, before: str, piece: str) -> None:
    """The slowest takes half a second. Anything quadratic would take hours."""
    start = time.thread_time()
    with suppress(BodyError):
        read(f"{before}{piece * (size // len(piece))}x".encode())
    assert time.thread_time() - start < 3
