"""From frame to command and back, by the encoding that the frame names."""

from collections.abc import Callable
from functools import cache

from routebook.wire.binary_header import decode_binary_header, encode_binary_header
from routebook.wire.codes import ResponseCode
from routebook.wire.command import Command, HeaderEncoding, Response
from routebook.wire.frame import HEADER_WORD_BYTES, LENGTH_BYTES, MAX_FRAME_BYTES, PREFIX, Frame, frame_head
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


@cache
def heads_of_success(
    version: int, encoding: HeaderEncoding, max_frame_bytes: int
) -> Callable[[bytes, int], bytes | None]:
    """Made once: of a success without fields and remark only the opaque varies, and the lengths."""
    any_opaque = 1_234_567_890
    response = Response(ResponseCode.SUCCESS, any_opaque, version=version)
    template = encode_json_header(response).replace(b"%d" % any_opaque, b"%b")
    pack = PREFIX.pack
    longest = max_frame_bytes - LENGTH_BYTES if encoding is HeaderEncoding.JSON else -1

    def head(opaque: bytes, body_length: int) -> bytes | None:
        header = template % opaque
        header_length = len(header)
        length = HEADER_WORD_BYTES + header_length + body_length
        return pack(length, header_length) + header if length <= longest else None

    return head
