"""The examples of Java's documentation of `Properties.load`, and its traps."""

import pytest

from routebook.settings.files import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Truth = Beauty", {"Truth": "Beauty"}),
        (" Truth:Beauty", {"Truth": "Beauty"}),
        ("Truth            :Beauty", {"Truth": "Beauty"}),
        ("Truth Beauty", {"Truth": "Beauty"}),
        ("cheeses", {"cheeses": ""}),
        ("a==b", {"a": "=b"}),
        ("a = = b", {"a": "= b"}),
        ("a=b ", {"a": "b "}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("fruits = apple, banana, \\\n         pear", {"fruits": "apple, banana, pear"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# not a comment", {"a": "b# not a comment"}),
        ("# comment \\\na=b", {"a": "b"}),
        ("! comment\n  # indented\n\n \t\na=b", {"a": "b"}),
        ("a=\\t\\n\\r\\f\\z\\\\", {"a": "\t\n\r\fz\\"}),
        ("a=\\u00e4\\u4E2D", {"a": "ä中"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\\", {"a": "b"}),
        ("", {}),
    ],
)
def test_reads_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uxyzw", "a=\\u"])
def test_a_broken_unicode_escape_is_an_error_as_in_java(text: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        parse_properties(text)
