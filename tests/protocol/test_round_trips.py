"""decode(encode(x)) is x, for both encodings and every command that they can carry."""

from hypothesis import given, settings
from hypothesis import strategies as st

from routebook.protocol.frame import (
    RESPONSE_FLAG,
    Command,
    FrameLimits,
    FrameReader,
    HeaderEncoding,
    Language,
    Request,
    Response,
)
from routebook.protocol.headers import decode_command, encode_command

INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SOME_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def decode(frame: bytes) -> Command:
    reader = FrameReader(FrameLimits())
    reader.receive(frame)
    found = reader.next_frame()
    assert found is not None
    assert reader.unread_bytes == 0
    return decode_command(found)


@st.composite
def commands(
    draw: st.DrawFn,
    numbers: st.SearchStrategy[int],
    remarks: st.SearchStrategy[str | None],
    exts: st.SearchStrategy[dict[str, str] | None],
) -> Command:
    flag = draw(INT32)
    kind = Response if flag & RESPONSE_FLAG else Request
    return kind(
        code=draw(numbers),
        opaque=draw(INT32),
        ext=draw(exts),
        body=draw(st.binary()),
        version=draw(numbers),
        language=draw(st.sampled_from(Language)),
        flag=flag,
        remark=draw(remarks),
    )


@settings(deadline=None)
@given(commands(INT32, st.none() | TEXT, st.none() | st.dictionaries(TEXT, TEXT)))
def test_json_carries_every_command(command: Command) -> None:
    again = decode(encode_command(command, HeaderEncoding.JSON))
    assert type(again) is type(command)
    assert again == command


@settings(deadline=None)
@given(commands(INT16, st.none() | SOME_TEXT, st.none() | st.dictionaries(SOME_TEXT, SOME_TEXT, min_size=1)))
def test_binary_carries_every_command_of_small_numbers_without_empty_texts(command: Command) -> None:
    again = decode(encode_command(command, HeaderEncoding.ROCKETMQ))
    assert type(again) is type(command)
    assert again == command
