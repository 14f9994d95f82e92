"""What every handler is given: who asks, and over what."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from routebook.errors import InvalidInputError
from routebook.model.caller import Caller
from routebook.registry.held_connections import HeldConnection
from routebook.remoting_api.reply import Reply
from routebook.wire.command import Request
from routebook.wire.fields import read_long, read_text


@dataclass(frozen=True, slots=True)
class Asking:
    request: Request
    connection: HeldConnection
    caller: Caller
    answer_now: Callable[[Reply], None]
    """For a handler that answers before it is done, and returns None in the end."""

    def text(self, name: str) -> str | None:
        return read_text(self.request.ext, name)

    def body_within(self, limit_bytes: int) -> bytes:
        """For what is read on the event loop. No peer's is longer; a stranger's could hold lookups up for seconds."""
        body = self.request.body
        if len(body) > limit_bytes:
            raise InvalidInputError("body", f"{len(body)} bytes", f"at most {limit_bytes} bytes for this request")
        return body

    def required(self, name: str) -> str:
        """Where the reference runs into a null pointer, or goes on and leaves debris."""
        text = self.text(name)
        if not text:
            raise InvalidInputError(name, text, "a text; the header has none")
        return text

    def required_long(self, name: str) -> int:
        number = read_long(self.request.ext, name, None)
        if number is None:
            raise InvalidInputError(name, self.text(name), "a whole number of 64 bits")
        return number


Handler = Callable[[Asking], Awaitable[Reply | None]]
