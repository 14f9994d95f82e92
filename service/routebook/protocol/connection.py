"""One connection, without its socket: bytes in, events out, bytes to send.

    events = connection.receive(data)        requests, responses to our own requests, at last perhaps an error
    transport.write(connection.answer(request, ResponseCode.SUCCESS, body=...))

Which bytes come in which chunk makes no difference to the events. Answers may be sent in any order: the peer pairs them
by their opaque number.
"""

from collections.abc import Iterable

from routebook.protocol.command import (
    ONEWAY_FLAG,
    SPOKEN_VERSION,
    Command,
    Ext,
    HeaderEncoding,
    Request,
    RequestCode,
    Response,
    ResponseCode,
)
from routebook.protocol.frame import FrameLimits, FrameReader, PeerProtocolError
from routebook.protocol.headers import decode_command, encode_command, encode_head, heads_of_success
from routebook.protocol.lookup_template import TOPIC, LookupTemplate, learn

Event = Request | Response | PeerProtocolError
"""The error is the last event: nothing is answered to it, the port closes the connection."""

OPAQUE_MASK = 0x7FFF_FFFF
SUCCESS = int(ResponseCode.SUCCESS)
LOOKUP = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)
_new_request = tuple.__new__
"""Past the constructor of a named tuple, which is a Python function and takes twice as long."""
LESSONS = 3
"""Lookups of a connection, at most, that are looked at for what they have in common."""
DEFAULT_LIMITS = FrameLimits()


class Connection:
    """Of either side: a name server answers requests; a client, or we when we tell brokers something, sends them."""

    __slots__ = (
        "_encoding",
        "_error",
        "_form",
        "_frames",
        "_last_opaque",
        "_lessons",
        "_limits",
        "_outstanding",
        "_version",
        "head_of_success",
        "lookup_form",
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
        """Of all we send: as in the reference a setting of ours, whatever the request was written in."""
        self._version = version
        self.head_of_success = heads_of_success(version, encoding, limits.max_frame_bytes)
        """All but the body of a success that says nothing else, for the digits of an opaque and the length of the body;
        None: `answer` knows.
        """
        self._frames = FrameReader(limits)
        self._form: LookupTemplate | None = None
        self.lookup_form: LookupTemplate | None = None
        """How the peer writes its lookups; set only where a frame may begin. Who can answer some of a chunk by this
        need not `receive` those.
        """
        self._lessons = LESSONS
        self._error: PeerProtocolError | None = None
        self._last_opaque = -1
        self._outstanding: set[int] = set()

    @property
    def error(self) -> PeerProtocolError | None:
        """Set: the peer broke the protocol, and whatever it still sends is not looked at."""
        return self._error

    @property
    def unread_bytes(self) -> int:
        """Above 0: a frame has begun and is not finished."""
        return 0 if self._error else self._frames.unread_bytes

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self._error:
            return events
        if form := self.lookup_form:
            data = self._take_lookups(form, data, events)
            if not data:
                return events
        frames = self._frames
        frames.receive(data)
        try:
            while frame := frames.next_frame():
                command = decode_command(frame)
                if type(command) is Request:
                    events.append(command)
                    if self._lessons and command.code == LOOKUP and frame.encoding is HeaderEncoding.JSON:
                        self._learn(frame.header, command)
                elif self._is_awaited(command):
                    events.append(command)
            self.lookup_form = None if frames.unread_bytes else self._form
        except PeerProtocolError as error:
            self.lookup_form = None
            self._error = error.with_traceback(None)  # A traceback would hold the frame until the connection ends.
            self._frames = FrameReader(self._limits)  # Lets go of what was kept.
            events.append(error)
        return events

    def _learn(self, header: bytes, lookup: Request) -> None:
        """Not from the first: many a connection asks once. Not for ever: a peer may write each in another way."""
        self._lessons -= 1
        if self._lessons < LESSONS - 1:
            self._form = learn(header, lookup, self._limits) or self._form

    @staticmethod
    def _take_lookups(form: LookupTemplate, data: bytes, events: list[Event]) -> bytes:
        """What is left of the chunk."""
        code, _, ext, _, version, language, flag, remark = form.example
        at, size = 0, len(data)
        while at < size and (lookups := form.read(data, at)):
            for topic, opaque, end in lookups:
                fields = {**ext, TOPIC: topic}  # type: ignore[dict-item]  # an example has ext fields
                values = (code, int(opaque), fields, b"", version, language, flag, remark)
                events.append(_new_request(Request, values))
                at = end
        return data[at:]

    def _is_awaited(self, command: Command) -> bool:
        """A response that nobody waits for is dropped, as the reference does."""
        if command.opaque not in self._outstanding:
            return False
        self._outstanding.discard(command.opaque)
        return True

    def answer(
        self, request: Request, code: int, *, ext: Ext | None = None, remark: str | None = None, body: bytes = b""
    ) -> bytes:
        """The bytes of the answer; none for a oneway request."""
        if request.flag & ONEWAY_FLAG:
            return b""
        response = Response(code, request.opaque, ext, body, self._version, remark=remark)
        return encode_command(response, self._encoding, self._limits.max_frame_bytes)

    def answer_in_parts(self, request: Request, code: int, body: bytes) -> Iterable[bytes]:
        """The same for a body that many answers share: it is handed on, not copied."""
        if request.flag & ONEWAY_FLAG:
            return ()
        if code == SUCCESS and (head := self.head_of_success(b"%d" % request.opaque, len(body))):
            return head, body
        response = Response(code, request.opaque, None, b"", self._version)
        return encode_head(response, len(body), self._encoding, self._limits.max_frame_bytes), body

    def ask(self, code: int, *, ext: Ext | None = None, body: bytes = b"") -> tuple[int, bytes]:
        """A request of our own: the number that its response will have, and the bytes to send."""
        opaque = self._last_opaque = (self._last_opaque + 1) & OPAQUE_MASK
        sent = encode_command(
            Request(code, opaque, ext, body, self._version), self._encoding, self._limits.max_frame_bytes
        )
        self._outstanding.add(opaque)
        return opaque, sent

    def forget(self, opaque: int) -> None:
        """Nobody waits for that response any more; should it still come, it is dropped."""
        self._outstanding.discard(opaque)

    def tell(self, code: int, *, ext: Ext | None = None, body: bytes = b"") -> bytes:
        """A oneway request: there will be no response."""
        self._last_opaque = (self._last_opaque + 1) & OPAQUE_MASK
        told = Request(code, self._last_opaque, ext, body, self._version, flag=ONEWAY_FLAG)
        return encode_command(told, self._encoding, self._limits.max_frame_bytes)
