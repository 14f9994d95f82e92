"""What JSON is read, and what bounds it."""

import json
import time
from contextlib import suppress

import pytest

from routebook.protocol.body_json import (
    LONGEST_NUMBER,
    MAX_JSON_VALUES,
    MAX_LENIENT_CHARACTERS,
    MAX_LENIENT_DEPTH,
    MAX_REPAIRS,
    BodyError,
    JsonLimitError,
    JsonSyntaxError,
    parse_leniently,
    read_json,
    with_quoted_integer_keys,
)


@pytest.mark.parametrize("body", [b"", b"null", b" \r\n\tnull ", b"   ", b"\xff", b'{"a":"\xc3"}', b"\xed\xa0\x80"])
def test_nothing_null_and_what_is_not_utf_8_are_null(body: bytes) -> None:
    assert read_json(body) is None


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
def test_what_the_reference_reads_is_read(body: str, value: object) -> None:
    if value is None:
        with pytest.raises(JsonSyntaxError):
            read_json(body.encode())
    else:
        assert read_json(body.encode()) == value


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
def test_what_is_no_json_of_any_kind_is_refused(body: str) -> None:
    with pytest.raises(JsonSyntaxError):
        read_json(body.encode())


def test_integer_keys_get_their_quotes_only_outside_of_texts() -> None:
    text = '{"a{1:":"\\\\",2:"{3:\\"{4:",5 :[{6:{7:0}},8,9]}'
    assert with_quoted_integer_keys(text) == '{"a{1:":"\\\\","2":"{3:\\"{4:","5" :[{"6":{"7":0}},8,9]}'


def test_the_repair_may_begin_where_the_parser_stopped() -> None:
    text = '{"a":[{"b":"x"}], \n 2 :{3:"{4:",5:6}}'
    repaired = '{"a":[{"b":"x"}], \n "2" :{"3":"{4:","5":6}}'
    assert with_quoted_integer_keys(text, text.index("2")) == repaired
    assert with_quoted_integer_keys(text) == repaired


def test_a_text_without_integer_keys_is_not_copied() -> None:
    text = '{"a":["{1:2}",3,4]}'
    assert with_quoted_integer_keys(text) is text


def test_depth_is_bounded() -> None:
    deepest = MAX_LENIENT_DEPTH
    assert parse_leniently("[" * deepest + "]" * deepest)
    with pytest.raises(JsonLimitError):
        parse_leniently("[" * (deepest + 1) + "]" * (deepest + 1))
    for opening in (b"[", b'{"a":', b"{a:", b"{1:", b"{'a':["):
        with pytest.raises(BodyError):
            read_json(opening * 200_000)


def test_the_number_of_values_is_bounded() -> None:
    with pytest.raises(JsonLimitError):
        read_json(b"[" + b"0," * (MAX_JSON_VALUES + 1) + b"0]")


def test_only_short_bodies_get_to_the_slow_reader() -> None:
    short = "{'a':'" + "x" * (MAX_LENIENT_CHARACTERS - 100) + "'}"
    assert isinstance(read_json(short.encode()), dict)
    with pytest.raises(JsonSyntaxError):
        read_json(short.replace("x", "xx").encode())


def test_a_large_table_with_integer_keys_does_not_go_to_the_slow_reader() -> None:
    text = json.dumps({"x" * 100 + str(number): {"topicName": "T"} for number in range(20_000)})
    assert len(text) > MAX_LENIENT_CHARACTERS
    value = read_json(f'{{"table":{text},"currIdMap":{{0:0,2:1}}}}'.encode())
    assert isinstance(value, dict)
    assert value["currIdMap"] == {"0": 0, "2": 1}


def test_numbers_too_long_for_any_field_stay_texts() -> None:
    digits = "9" * (LONGEST_NUMBER + 1)
    assert parse_leniently(f"[{digits}]") == [digits]
    assert read_json(f"[{'9' * 5000}]".encode()) == ["9" * 5000]


@pytest.mark.parametrize("size", [MAX_LENIENT_CHARACTERS - 20, 4 * MAX_LENIENT_CHARACTERS])
@pytest.mark.parametrize("before", ["{", '{"a":', "['", "{a:"])
@pytest.mark.parametrize(
    "piece", ['"\\', "{1:", ",1", '"', " ", "'\\u0041", "\\", "[],", "{'a':", "9", "-", "{a:1,", "1:", "1.", "e", ".1"]
)
def test_no_nonsense_takes_long(size: int, before: str, piece: str) -> None:
    """The slowest takes a fifth of a second; what is quadratic takes hours."""
    start = time.thread_time()
    with suppress(BodyError):
        read_json(f"{before}{piece * (size // len(piece))}x".encode())
    assert time.thread_time() - start < 3


def test_repairs_are_bounded() -> None:
    many = "{" + "1:0," * (MAX_REPAIRS + 10) + "1:0}"
    with pytest.raises(BodyError):
        read_json(many.encode())
