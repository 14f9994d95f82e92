"""Ext fields are texts. One that cannot be parsed counts as absent and is never refused."""

import pytest

from routebook.protocol.headers import read_boolean, read_int, read_long, read_text, write_fields


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-5", -5),
        ("+5", 5),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0" * 30 + "1", 1),
        ("0" * 10_000, 0),
    ],
)
def test_a_long_is_read_as_java_reads_it(text: str, value: int) -> None:
    assert read_long({"brokerId": text}, "brokerId", None) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-",
        "+",
        " 1",
        "1 ",
        "1\n",
        "1_000",
        "1,000",
        "0x10",
        "1.0",
        "1e3",
        "null",
        "9223372036854775808",
        "9" * 99_999,
    ],
    ids=lambda text: repr(text[:25]),
)
def test_a_text_that_is_not_a_long_counts_as_absent(text: str) -> None:
    assert read_long({"brokerId": text}, "brokerId", None) is None
    assert read_long({"brokerId": text}, "brokerId", 0) == 0


def test_an_int_has_32_bits() -> None:
    assert read_int({"n": "2147483647"}, "n", None) == 2**31 - 1
    assert read_int({"n": "-2147483648"}, "n", None) == -(2**31)
    assert read_int({"n": "2147483648"}, "n", None) is None
    assert read_int({"n": "-2147483649"}, "n", 0) == 0


@pytest.mark.parametrize("text", ["true", "TRUE", "True", "tRuE"])
def test_true_is_read_in_any_letter_case(text: str) -> None:
    assert read_boolean({"compressed": text}, "compressed") is True


@pytest.mark.parametrize("text", ["false", "", "1", "yes", " true", "truee", "on"])
def test_every_other_text_is_false(text: str) -> None:
    assert read_boolean({"compressed": text}, "compressed", default=True) is False


@pytest.mark.parametrize("ext", [None, {}, {"other": "1"}])
def test_absent_fields_have_their_defaults(ext: dict[str, str] | None) -> None:
    assert read_text(ext, "topic") is None
    assert read_long(ext, "brokerId", None) is None
    assert read_int(ext, "brokerId", 0) == 0
    assert read_boolean(ext, "compressed") is False
    assert read_boolean(ext, "enabled", default=True) is True


def test_a_text_is_read_unchanged() -> None:
    assert read_text({"topic": " %RETRY%group "}, "topic") == " %RETRY%group "
    assert read_text({"namespace": ""}, "namespace") == ""


def test_fields_are_written_as_java_writes_them() -> None:
    assert write_fields({"text": "", "long": -1, "yes": True, "no": False, "absent": None}) == {
        "text": "",
        "long": "-1",
        "yes": "true",
        "no": "false",
    }
