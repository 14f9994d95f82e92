"""The ROCKETMQ header: no length inside it may go beyond the header."""

import struct

import pytest

from routebook.protocol.frame import Language, OwnProtocolError, PeerProtocolError, Request, Response, Violation
from routebook.protocol.headers import decode_binary_header, encode_binary_header
from tests.protocol.plain_frames import binary_header


def test_every_field_is_read() -> None:
    header = binary_header(-105, 9, 513, -2, 5, "gö".encode(), [(b"topic", "Thé".encode()), (b"a", b"b")])
    expected = Response(-105, -2, {"topic": "Thé", "a": "b"}, b"body", 513, Language.GO, 5, "gö")
    assert decode_binary_header(header, b"body") == expected


def test_without_remark_and_ext_it_has_21_bytes() -> None:
    assert len(binary_header()) == 21
    assert decode_binary_header(binary_header(), b"") == Request(105, 1)


def test_an_empty_text_counts_as_absent() -> None:
    header = binary_header(ext=[(b"namespace", b""), (b"", b"value"), (b"key", b"k")])
    assert decode_binary_header(header, b"").ext == {"key": "k"}


@pytest.mark.parametrize(("number", "language"), [(13, Language.NODE_JS), (14, Language.OTHER), (-1, Language.OTHER)])
def test_an_unknown_language_is_accepted(number: int, language: Language) -> None:
    assert decode_binary_header(binary_header(language=number), b"").language is language


def test_bytes_after_the_ext_fields_are_tolerated() -> None:
    assert decode_binary_header(binary_header(ext=[(b"a", b"b")]) + b"more", b"") == Request(105, 1, {"a": "b"})


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert decode_binary_header(binary_header(remark=b"a\xffb"), b"").remark == "a\ufffdb"


@pytest.mark.parametrize("length", range(21))
def test_an_incomplete_header_is_refused(length: int) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        decode_binary_header(binary_header()[:length], b"")
    assert caught.value.violation is Violation.BINARY_HEADER


WHOLE = binary_header(remark=b"abc", ext=[(b"topic", b"TopicA")])
REMARK_LENGTH, EXT_LENGTH = 13, 20
NAME_LENGTH, VALUE_LENGTH = 24, 31


LIES = [
    (at, lie)
    for at in (REMARK_LENGTH, EXT_LENGTH, VALUE_LENGTH)
    for lie in (-1, 2**31 - 1, -(2**31), 1_000)
    if at != EXT_LENGTH or lie > 0
]


def test_a_negative_ext_block_counts_as_none() -> None:
    header = WHOLE[:EXT_LENGTH] + struct.pack(">i", -1) + WHOLE[EXT_LENGTH + 4 :]
    assert decode_binary_header(header, b"").ext is None


@pytest.mark.parametrize(("at", "lie"), LIES)
def test_a_wrong_length_is_refused(at: int, lie: int) -> None:
    with pytest.raises(PeerProtocolError):
        decode_binary_header(WHOLE[:at] + struct.pack(">i", lie) + WHOLE[at + 4 :], b"")


@pytest.mark.parametrize("lie", [-1, 2**15 - 1, -(2**15), 12])
def test_a_wrong_length_of_a_name_is_refused(lie: int) -> None:
    with pytest.raises(PeerProtocolError):
        decode_binary_header(WHOLE[:NAME_LENGTH] + struct.pack(">h", lie) + WHOLE[NAME_LENGTH + 2 :], b"")


@pytest.mark.parametrize("missing", range(1, 17))
def test_an_entry_must_end_within_the_ext_fields(missing: int) -> None:
    """Even if more bytes follow."""
    shorter = WHOLE[:EXT_LENGTH] + struct.pack(">i", 17 - missing) + WHOLE[EXT_LENGTH + 4 :]
    with pytest.raises(PeerProtocolError):
        decode_binary_header(shorter, b"")


def test_a_code_beyond_16_bits_is_truncated_as_by_rocketmq() -> None:
    header = encode_binary_header(Request(70_000, 1, version=479))
    assert decode_binary_header(header, b"").code == 70_000 - 65_536
    assert decode_binary_header(encode_binary_header(Request(-5, 1)), b"").code == -5


def test_a_name_that_is_too_long_is_our_own_error() -> None:
    with pytest.raises(OwnProtocolError):
        encode_binary_header(Request(105, 1, {"n" * 32_768: "v"}))
