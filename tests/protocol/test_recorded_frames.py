"""Frames of real brokers, clients, tools and name servers are read, and written again with the same bytes."""

import zlib

import pytest

from routebook.protocol.connection import Connection
from routebook.protocol.frame import (
    Command,
    FrameLimits,
    FrameReader,
    HeaderEncoding,
    Language,
    Request,
    RequestCode,
    Response,
)
from routebook.protocol.headers import decode_command, encode_command, read_boolean, read_long, read_text
from tests.protocol.recorded_frames import RELEASES, recorded_frames

ALL = [(release, name) for release in RELEASES for name in recorded_frames(release)]


def decoded(release: str, name: str) -> tuple[HeaderEncoding, Command]:
    reader = FrameReader(FrameLimits())
    reader.receive(recorded_frames(release)[name])
    frame = reader.next_frame()
    assert frame is not None
    assert reader.unread_bytes == 0
    return frame.encoding, decode_command(frame)


@pytest.mark.parametrize(("release", "name"), ALL)
def test_every_frame_has_the_content_that_its_name_says(release: str, name: str) -> None:
    encoding, command = decoded(release, name)
    words = name.split()
    assert encoding == ["json", "binary"].index(words[0])
    assert isinstance(command, Response) is (words[1] == "response")
    assert command.code == int(words[-1])
    assert command.version == RELEASES[release]
    assert command.language is Language.JAVA


@pytest.mark.parametrize(("release", "name"), ALL)
def test_every_frame_is_written_again_with_the_same_bytes(release: str, name: str) -> None:
    encoding, command = decoded(release, name)
    assert encode_command(command, encoding) == recorded_frames(release)[name]


@pytest.mark.parametrize("release", RELEASES)
def test_all_requests_of_a_peer_are_read_from_one_stream(release: str) -> None:
    frames = recorded_frames(release)
    events = Connection().receive(b"".join(frames.values()))
    assert [event.code for event in events if isinstance(event, Request)] == [
        int(name.split()[-1]) for name in frames if "request" in name
    ]
    assert len(events) >= 9


@pytest.mark.parametrize("release", RELEASES)
def test_a_registration_has_its_fields_and_its_checksum(release: str) -> None:
    (name,) = [name for name in recorded_frames(release) if name.endswith(f"request {RequestCode.REGISTER_BROKER:d}")]
    _, command = decoded(release, name)
    assert read_text(command.ext, "brokerName") == "broker-a"
    assert read_long(command.ext, "brokerId", None) == 0
    assert read_boolean(command.ext, "compressed") is False
    assert read_long(command.ext, "bodyCrc32", None) == zlib.crc32(command.body) & 0x7FFF_FFFF
