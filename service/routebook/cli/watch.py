"""`routebook watch [TOPIC]`: server-sent events, resumed after a lost connection."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import click
import httpx

from routebook.cli.command import command, complete
from routebook.cli.fleet import permission_letters
from routebook.cli.forms import Form, with_output
from routebook.cli.output import json_text, printable
from routebook.cli.readable import moment_text
from routebook.cli.service_client import Service, error_of, path_part, with_service
from routebook.runtime.exits import AnswerIsNoError

_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 15.0
_SILENCE_SECONDS = 35.0
"""The service sends a keep-alive every ten seconds; after this time without one, the connection is dead."""
MAX_COMPARED: Final = 50_000
"""Topics whose routes are loaded at the start of a watch of all topics."""


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: str
    last_id: str


@command("watch")
@click.argument("topic", required=False, shell_complete=complete("topics"))
@click.option("--after", default="", metavar="ID", help="Resume after this event (`<ms>-<version>`).")
@click.option("--full", is_flag=True, help="Print whole routes instead of what changed in them.")
@with_output
@with_service
def watch_command(service: Service, *, topic: str | None, after: str, full: bool, form: Form) -> None:
    """Print every change of a topic's route, or of all routes, until Ctrl-C.

    Each line: time, version, + (added), - (removed) or ~ (changed), topic, broker, and what changed. JSON: one event a
    line, with the whole route.

    \b
    routebook watch orders
    routebook watch --json | jq .data.topic
    """
    routes = Routes()
    if form.is_table and not full and not after:
        after = _load_routes(service, topic, routes)
    last_id, pause, has_connected = after, _PAUSE_SECONDS, False

    def on_connected() -> None:
        nonlocal has_connected, pause
        has_connected, pause = True, _PAUSE_SECONDS

    while True:
        try:
            for event in _events(service, topic, last_id, on_connected):
                last_id = event.last_id or last_id
                _print(event, routes, form, full=full)
        except httpx.TransportError:
            if not has_connected:
                with service.connection_errors():
                    raise
        click.echo(f"The connection ended; reconnecting in {pause:g} s.", err=True)
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def _load_routes(service: Service, topic: str | None, routes: "Routes") -> str:
    """Loads the routes before the first event, so that this one can be compared with them. Returns the event after
    which the watch has to begin: what changes during the load is compared again, which shows nothing twice.
    """
    newest = service.get("/v1/changes", order="desc", limit=1)["changes"]
    changes = [entry["entry"] for entry in newest if entry["version"] is not None]
    if not changes:
        routes.has_all = True
        return ""
    if topic is not None:
        try:
            routes.keep(topic, service.get(f"/v1/routes/{path_part(topic)}"))
        except AnswerIsNoError:
            routes.keep(topic, None)
            click.echo(f"{printable(topic)}: no such topic now", err=True)
        return str(changes[0])
    groups = {group["name"]: group for group in service.pages("/v1/brokers", "brokers")}
    topics = service.pages("/v1/topics", "topics")
    for one in islice(topics, MAX_COMPARED):
        routes.keep_queues(one, groups)
    routes.has_all = next(topics, None) is None
    return str(changes[0])


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


@dataclass(frozen=True, slots=True)
class BrokerPart:
    """One broker group of a route."""

    read: int
    write: int
    perm: int
    addresses: Mapping[int, str]

    def __str__(self) -> str:
        addresses = ", ".join(f"{id_}={address}" for id_, address in sorted(self.addresses.items()))
        return f"{self.read} read, {self.write} write, {permission_letters(self.perm)}, at {addresses or 'no address'}"

    def changes_to(self, new: "BrokerPart") -> Iterator[str]:
        if self.read != new.read:
            yield f"read queues {self.read} -> {new.read}"
        if self.write != new.write:
            yield f"write queues {self.write} -> {new.write}"
        if self.perm != new.perm:
            yield f"permission {permission_letters(self.perm)} -> {permission_letters(new.perm)}"
        for id_ in sorted(self.addresses.keys() | new.addresses.keys()):
            was, now = self.addresses.get(id_), new.addresses.get(id_)
            if was != now:
                yield f"id {id_}: {was or 'none'} -> {now or 'none'}"


Parts = Mapping[str, BrokerPart]
"""A route, by broker name."""


class Routes:
    """The routes as this command has last seen them."""

    def __init__(self) -> None:
        self._parts: dict[str, Parts] = {}
        self.has_all = False
        """Whether every topic that existed at the start is here, so that another one is new."""

    def keep(self, topic: str, route: dict[str, Any] | None) -> None:
        self._parts[topic] = _parts_of(route)

    def keep_queues(self, topic: dict[str, Any], groups: Mapping[str, Any]) -> None:
        self._parts[topic["topic"]] = {
            broker: BrokerPart(
                one["read_queues"],
                one["write_queues"],
                one["perm"],
                {
                    0 if member["role"] == "acting-master" else member["id"]: member["address"]
                    for member in groups[broker]["members"]
                },
            )
            for broker, one in topic["queues"].items()
            if broker in groups
        }

    def changes_to(self, topic: str, route: dict[str, Any] | None) -> Iterator[tuple[str, str, str]]:
        """Sign, broker and text of each change; then this route is the one that was last seen."""
        is_known = self.has_all or topic in self._parts
        before, after = self._parts.get(topic, {}), _parts_of(route)
        self._parts[topic] = after
        for broker in sorted(before.keys() | after.keys()):
            if broker not in after:
                yield "-", broker, str(before[broker])
            elif broker not in before:
                # Too many topics to load all of them before: what this one was is not known.
                yield "+" if is_known else "=", broker, str(after[broker])
            elif found := "; ".join(before[broker].changes_to(after[broker])):
                yield "~", broker, found
        if not after:
            yield "-", "", "no such topic now"


def _parts_of(route: dict[str, Any] | None) -> Parts:
    if route is None:
        return {}
    addresses = {one["brokerName"]: one["brokerAddrs"] for one in route.get("brokerDatas", [])}
    return {
        one["brokerName"]: BrokerPart(
            one["readQueueNums"],
            one["writeQueueNums"],
            one["perm"],
            {int(id_): address for id_, address in addresses.get(one["brokerName"], {}).items()},
        )
        for one in route.get("queueDatas", [])
    }


def _print(event: Event, routes: Routes, form: Form, *, full: bool) -> None:
    data = json.loads(event.data)
    if not form.is_table:
        form.print_entry({"event": event.name, "id": event.last_id, "data": data})
        return
    if event.name != "route":
        click.echo(printable(f"{event.name}: {event.data}"), err=True)
        return
    ms, _, version = event.last_id.partition("-")
    # Only the last event of a change has its id, so the others have the time of their arrival.
    is_own_id = version == str(data["version"])
    start = f"{moment_text(int(ms) if is_own_id else int(time.time() * 1000))}  #{data['version']}"
    if full:
        route = "no such topic now" if data["route"] is None else json_text(data["route"])
        click.echo(printable(f"{start}  {data['topic']}  {route}"))
        return
    for sign, broker, text in routes.changes_to(data["topic"], data["route"]):
        what = f"{data['topic']}  {broker}: {text}" if broker else f"{data['topic']}  {text}"
        click.echo(printable(f"{start}  {sign} {what}"))
