"""`routebook watch [TOPIC]`: server-sent events, resumed after a lost connection."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import click
import httpx

from routebook.cli.output import json_text, printable
from routebook.cli.service_client import Service, as_json, error_of, with_service

_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 15.0
_SILENCE_SECONDS = 35.0
"""The service sends a keep-alive every ten seconds; after this time without one, the connection is dead."""


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: str
    last_id: str


@click.command("watch")
@click.argument("topic", required=False)
@click.option("--after", default="", metavar="ID", help="Resume after this event (`<ms>-<version>`).")
@as_json
@with_service
def watch_command(service: Service, topic: str | None, after: str, json_: bool) -> None:
    """Print every change of a topic's route, or of all routes, until Ctrl-C. JSON: one event a line."""
    last_id, pause, has_connected = after, _PAUSE_SECONDS, False

    def on_connected() -> None:
        nonlocal has_connected, pause
        has_connected, pause = True, _PAUSE_SECONDS

    while True:
        try:
            for event in _events(service, topic, last_id, on_connected):
                last_id = event.last_id or last_id
                _print(event, json_)
        except httpx.TransportError:
            if not has_connected:
                with service.connection_errors():
                    raise
        click.echo(f"The connection ended; reconnecting in {pause:g} s.", err=True)
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def _events(service: Service, topic: str | None, last_id: str, on_connected: Callable[[], None]) -> Iterator[Event]:
    headers = {"accept": "text/event-stream"} | ({"last-event-id": last_id} if last_id else {})
    params = {"topic": topic} if topic else {}
    timeout = httpx.Timeout(_SILENCE_SECONDS, connect=5.0)
    with service.http.stream("GET", "/v1/watch", params=params, headers=headers, timeout=timeout) as answer:
        if not answer.is_success:
            raise error_of(answer)
        on_connected()
        click.echo(f"Watching {topic or 'all topics'} at {service.url}; Ctrl-C stops.", err=True)
        yield from parse_events(answer.iter_lines())


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """As the HTML standard reads an event stream: an empty line ends an event, a colon begins a comment."""
    name, data, last_id = "message", list[str](), ""
    for line in lines:
        if not line:
            if data:
                yield Event(name, "\n".join(data), last_id)
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            last_id = value


def _print(event: Event, json_: bool) -> None:
    data = json.loads(event.data)
    if json_:
        click.echo(json_text({"event": event.name, "id": event.last_id, "data": data}))
    elif event.name == "route":
        click.echo(printable(f"{data['version']:>8}  {data['topic']}  {_summary(data['route'])}"))
    else:
        click.echo(printable(f"{event.name}: {event.data}"), err=True)


def _summary(route: dict[str, Any] | None) -> str:
    if route is None:
        return "no such topic now"
    queues = {one["brokerName"]: one for one in route.get("queueDatas", [])}
    return ", ".join(
        f"{broker['brokerName']} ({len(broker['brokerAddrs'])} instances, "
        f"{queues.get(broker['brokerName'], {}).get('writeQueueNums', 0)} write queues)"
        for broker in route.get("brokerDatas", [])
    )
