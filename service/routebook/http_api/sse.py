"""Server-sent events as bytes (HTML standard, section 9.2)."""

import json
import re
from typing import Any, Final, NamedTuple

from routebook.replica.subscriptions import RouteEvent

KEEP_ALIVE: Final = b": still here\n\n"
_EVENT_ID: Final = re.compile(r"([0-9]{1,16})-([0-9]{1,19})")


class EventId(NamedTuple):
    """The id of an entry of the change history; its text is what a client sends back."""

    ms: int
    version: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.version}"


def parse_event_id(text: str) -> EventId | None:
    found = _EVENT_ID.fullmatch(text.strip())
    return EventId(int(found[1]), int(found[2])) if found else None


def event(name: str, data: Any, event_id: EventId | None = None) -> bytes:
    """JSON has no line feeds of its own, so one data line holds it."""
    lines = [f"event: {name}", f"data: {json.dumps(data, separators=(',', ':'))}"]
    if event_id is not None:
        lines.append(f"id: {event_id}")
    return ("\n".join(lines) + "\n\n").encode()


def route_event(happened: RouteEvent, route: bytes | None) -> bytes:
    """The route is JSON already: it is set in, not decoded and encoded again.

    Of several events of one version only the last has an id: whoever goes on behind an id has missed nothing.
    """
    head = "event: route\n"
    if happened.last:
        head += f"id: {EventId(happened.ms, happened.version)}\n"
    data = f'data: {{"topic":{json.dumps(happened.topic)},"version":{happened.version},"route":'
    return (head + data).encode() + (route if route is not None else b"null") + b"}\n\n"
