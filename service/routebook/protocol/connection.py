"""One connection without its socket: bytes in, events out, bytes to send.

    events = connection.receive(data)        requests, responses to our own requests, finally perhaps an error
    transport.write(connection.answer(request, ResponseCode.SUCCESS, body=...))

How the bytes are divided into chunks makes no difference to the events. Answers may be sent in any order, because the
peer matches them by their opaque number.
"""

from collections.abc import Iterable
from typing import Final

from routebook.protocol.frame import (
    ONEWAY_FLAG,
    SPOKEN_VERSION,
    Command,
    Ext,
    FrameLimits,
    FrameReader,
    HeaderEncoding,
    PeerProtocolError,
    Request,
    RequestCode,
    Response,
    ResponseCode,
)
from routebook.protocol.headers import decode_command, encode_command, encode_head, success_head_encoder
from routebook.protocol.lookup_template import LookupTemplate, derive_template

Event = Request | Response | PeerProtocolError
"""An error is the last event: it gets no answer, and the port closes the connection."""

OPAQUE_MASK: Final = 0x7FFF_FFFF
SUCCESS: Final = int(ResponseCode.SUCCESS)
LOOKUP: Final = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)
MAX_TEMPLATE_SAMPLES: Final = 3
"""Lookups of a connection, at most, from which it is tried to derive a template."""
DEFAULT_LIMITS: Final = FrameLimits()


class Connection:
    """Of either side: a name server answers requests; a client sends them, and so do we when we notify brokers."""

    __slots__ = (
        "_encoding",
        "_error",
        "_frames",
        "_last_opaque",
        "_limits",
        "_outstanding",
        "_samples_left",
        "_template",
        "_version",
        "encode_success_head",
        "lookup_template",
    )

    def __init__(
        self,
        limits: FrameLimits = DEFAULT_LIMITS,
        *,
        encoding: HeaderEncoding = HeaderEncoding.JSON,
        version: int = SPOKEN_VERSION,
    ) -> None:
        self._limits = limits
        self._encoding = encoding
        """Of everything we send. As in RocketMQ, it is a setting and does not depend on the request."""
        self._version = version
        self.encode_success_head = success_head_encoder(version, encoding, limits.max_frame_bytes)
        """The frame without its body, for a success without fields and remark: from the digits of the opaque number and
        the length of the body. None means that `answer` has to be called.
        """
        self._frames = FrameReader(limits)
        self._template: LookupTemplate | None = None
        self.lookup_template: LookupTemplate | None = None
        """Set only where a frame may begin. Lookups that the caller reads with it must not be passed to `receive`."""
        self._samples_left = MAX_TEMPLATE_SAMPLES
        self._error: PeerProtocolError | None = None
        self._last_opaque = -1
        self._outstanding: set[int] = set()

    @property
    def error(self) -> PeerProtocolError | None:
        """When set, the peer has broken the protocol, and what it still sends is ignored."""
        return self._error

    @property
    def unread_bytes(self) -> int:
        """The bytes of a frame that has begun and is not complete."""
        return 0 if self._error else self._frames.unread_bytes

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self._error:
            return events
        frames = self._frames
        frames.receive(data)
        try:
            while frame := frames.next_frame():
                command = decode_command(frame)
                if type(command) is Request:
                    events.append(command)
                    if self._samples_left and command.code == LOOKUP and frame.encoding is HeaderEncoding.JSON:
                        self._sample(frame.header, command)
                elif self._is_awaited(command):
                    events.append(command)
            self.lookup_template = None if frames.unread_bytes else self._template
        except PeerProtocolError as error:
            self.lookup_template = None
            self._error = error.with_traceback(None)  # A traceback would keep the frame until the connection ends.
            self._frames = FrameReader(self._limits)  # Releases the bytes that were kept.
            events.append(error)
        return events

    def _sample(self, header: bytes, lookup: Request) -> None:
        """Not the first lookup, because many connections send only one. Only a few, because a peer may write each of
        its lookups in another way.
        """
        self._samples_left -= 1
        if self._samples_left < MAX_TEMPLATE_SAMPLES - 1:
            self._template = derive_template(header, lookup, self._limits) or self._template

    def _is_awaited(self, command: Command) -> bool:
        """A response to no request of ours is dropped, as in RocketMQ."""
        if command.opaque not in self._outstanding:
            return False
        self._outstanding.discard(command.opaque)
        return True

    def answer(
        self, request: Request, code: int, *, ext: Ext | None = None, remark: str | None = None, body: bytes = b""
    ) -> bytes:
        """The bytes of the answer; empty for a oneway request."""
        if request.flag & ONEWAY_FLAG:
            return b""
        response = Response(code, request.opaque, ext, body, self._version, remark=remark)
        return encode_command(response, self._encoding, self._limits.max_frame_bytes)

    def answer_in_parts(self, request: Request, code: int, body: bytes) -> Iterable[bytes]:
        """The same for a body that many answers share and that is not copied into each."""
        if request.flag & ONEWAY_FLAG:
            return ()
        if code == SUCCESS and (head := self.encode_success_head(b"%d" % request.opaque, len(body))):
            return head, body
        response = Response(code, request.opaque, None, b"", self._version)
        return encode_head(response, len(body), self._encoding, self._limits.max_frame_bytes), body

    def request(self, code: int, *, ext: Ext | None = None, body: bytes = b"") -> tuple[int, bytes]:
        """A request of our own: the opaque number of its response, and the bytes to send."""
        opaque = self._last_opaque = (self._last_opaque + 1) & OPAQUE_MASK
        sent = encode_command(
            Request(code, opaque, ext, body, self._version), self._encoding, self._limits.max_frame_bytes
        )
        self._outstanding.add(opaque)
        return opaque, sent

    def abandon_request(self, opaque: int) -> None:
        """Its response is no longer awaited. If it still arrives, it is dropped."""
        self._outstanding.discard(opaque)

    def oneway_request(self, code: int, *, ext: Ext | None = None, body: bytes = b"") -> bytes:
        """A request to which there will be no response."""
        self._last_opaque = (self._last_opaque + 1) & OPAQUE_MASK
        request = Request(code, self._last_opaque, ext, body, self._version, flag=ONEWAY_FLAG)
        return encode_command(request, self._encoding, self._limits.max_frame_bytes)
