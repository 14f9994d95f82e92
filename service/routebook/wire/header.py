"""From frame to command and back, by the encoding that the frame names."""

from routebook.wire.binary_header import decode_binary_header, encode_binary_header
from routebook.wire.command import Command, HeaderEncoding
from routebook.wire.frame import MAX_FRAME_BYTES, Frame, frame_head
from routebook.wire.json_header import decode_json_header, encode_json_header


def decode_command(frame: Frame) -> Command:
    encoding, header, body = frame
    if encoding is HeaderEncoding.JSON:
        return decode_json_header(header, body)
    return decode_binary_header(header, body)


def encode_command(
    command: Command, encoding: HeaderEncoding = HeaderEncoding.JSON, max_frame_bytes: int = MAX_FRAME_BYTES
) -> bytes:
    """The whole frame."""
    return encode_head(command, len(command.body), encoding, max_frame_bytes) + command.body


def encode_head(
    command: Command,
    body_length: int,
    encoding: HeaderEncoding = HeaderEncoding.JSON,
    max_frame_bytes: int = MAX_FRAME_BYTES,
) -> bytes:
    """The frame without its body: for a body that is cached and only joined when it is written."""
    header = encode_json_header(command) if encoding is HeaderEncoding.JSON else encode_binary_header(command)
    return frame_head(encoding, header, body_length, max_frame_bytes)
