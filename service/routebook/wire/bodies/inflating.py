"""A zlib stream, inflated to no more than a limit, whatever the stream or the lengths inside say."""

import struct
import zlib
from typing import Final

from routebook.wire.bodies.body_error import InflateError, InflateLimitError

_STEP_BYTES: Final = 64 * 1024
"""Fed in steps: what one step leaves over is copied by the next."""
_INT: Final = struct.Struct(">i")


class Inflated:
    """Reads integers and lengths-with-bytes from the front.

    What comes after the last thing that is asked for does not matter, as with the reference: neither what it is, nor
    whether it would pass the limit, nor whether the stream has an end at all. So too little is an error only for the
    one who needs more.
    """

    def __init__(self, body: bytes, *, limit_bytes: int) -> None:
        self._content, self._shortfall = _inflate(body, limit_bytes)
        self._at = 0

    def take_int(self) -> int:
        number: int = _INT.unpack(self._take(_INT.size))[0]
        return number

    def take_block(self) -> bytes:
        """A length and as many bytes."""
        return self._take(self.take_int())

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0:
            raise InflateError(f"A length inside the compressed body is {count}.", advice="Allowed: 0 or more.")
        if end > len(self._content):
            raise self._shortfall
        taken = self._content[self._at : end]
        self._at = end
        return bytes(taken)


def _inflate(body: bytes, limit_bytes: int) -> tuple[bytearray, InflateError]:
    """What there is up to the limit, and the error of whoever wants more."""
    stream = zlib.decompressobj()
    content = bytearray()
    rest = memoryview(body)
    fed = b""
    try:
        while not stream.eof and (rest or fed):
            if not fed:
                fed, rest = bytes(rest[:_STEP_BYTES]), rest[_STEP_BYTES:]
            room = limit_bytes - len(content)
            if room <= 0:
                return content, InflateLimitError(limit_bytes)
            content += stream.decompress(fed, min(room, _STEP_BYTES))
            fed = stream.unconsumed_tail
    except zlib.error as error:
        return content, InflateError(f"The compressed body is no zlib stream: {error}.")
    return content, InflateError(f"The compressed body ends after {len(content)} bytes, in the midst of something.")
