"""Warns when an answer of the service may be old or wrong: on stderr, and in JSON.

The service names the reasons in headers of every read. `Service` reads them from each answer, and the forms of output
add them to what they print.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import click
import httpx

from routebook.cli.output import printable

_TEXTS: Final = {
    "incomplete": "This worker has not loaded the whole table yet, so names may be missing.",
    "stale": "This worker is out of touch with the store for {stale_seconds} s, so the answer may be old.",
    "recovering": "The store lost data; the answer includes what this worker had before.",
    "removals-held": "Removals are held: some brokers shown may be dead. See `routebook expiry status`.",
}
_KEY: Final = "routebook.staleness"


@dataclass(slots=True)
class Staleness:
    """Why the answers that one command received may be old or wrong."""

    kinds: list[str] = field(default_factory=list)
    stale_seconds: int = 0
    is_reported: bool = True
    """False for a command that reports the state of the service itself."""

    def read_headers(self, answer: httpx.Response) -> None:
        """Writes each new reason to stderr once."""
        self.stale_seconds = int(answer.headers.get("x-routebook-stale-seconds", self.stale_seconds))
        for kind in filter(None, answer.headers.get("x-routebook-warnings", "").split(", ")):
            if kind in self.kinds:
                continue
            self.kinds.append(kind)
            if self.is_reported:
                click.echo(f"Warning: {printable(self.text_of(kind))}", err=True)

    def text_of(self, kind: str) -> str:
        return _TEXTS.get(kind, f"The service reports: {kind}.").format(stale_seconds=self.stale_seconds)

    def add_to(self, value: Any) -> Any:
        """The same JSON value, in which the object, or each object of a list, names the reasons."""
        if not self.kinds or not isinstance(value, dict | list):
            return value
        if isinstance(value, list):
            return [self.add_to(item) for item in value]
        return {**value, "service_warnings": self.kinds, "stale_seconds": self.stale_seconds}


def staleness() -> Staleness:
    """That of the running command."""
    context = click.get_current_context(silent=True)
    if context is None:
        return Staleness()
    found: Staleness = context.meta.setdefault(_KEY, Staleness())
    return found
