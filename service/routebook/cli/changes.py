"""`routebook changes`: who changed what and when, and refused requests. `routebook watch`: how routes change.

Both follow server-sent events, and resume after a lost connection.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import click
import httpx

from routebook.cli.command import command, complete
from routebook.cli.forms import Form, with_output
from routebook.cli.output import json_text, moment_text, parse_when, permission_letters, printable
from routebook.cli.service_client import Service, error_of, path_part, with_service
from routebook.model.change_text import describe_change
from routebook.runtime.exits import AnswerIsNoError

_PAGE: Final = 500
_SILENCE_S: Final = 35.0
"""The service sends a keep-alive every ten seconds; after this time without one, the connection is dead."""
_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 15.0
QUIET_KINDS: Final = frozenset({"baseline-seat", "baseline-queues"})
"""They repeat the table and change nothing; shown only when asked for with --kind."""


@command("changes")
@click.option("--since", metavar="WHEN", help="Begin after this: 10m, 03:12, a time (ISO 8601), a version or an id.")
@click.option("--until", metavar="WHEN", help="End at this; the same forms.")
@click.option("--broker", metavar="NAME", shell_complete=complete("brokers"), help="Only changes of this broker name.")
@click.option("--topic", metavar="NAME", shell_complete=complete("topics"), help="Only changes that name this topic.")
@click.option("--cluster", metavar="NAME", shell_complete=complete("clusters"), help="Only changes of this cluster.")
@click.option("--kind", "kinds", metavar="KIND", multiple=True, help="Only this kind, such as refused; repeatable.")
@click.option("--actor", metavar="NAME", help="Only changes by this identity, `operator`, `anonymous` or worker.")
@click.option("--from", "source", metavar="ADDRESS", help="Only requests from this address, with or without a port.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after the first N lines.")
@click.option("--last", type=click.IntRange(min=1, max=1000), metavar="N", help="Only the last N lines.")
@click.option("--follow", is_flag=True, help="Continue with new changes until Ctrl-C.")
@with_output
@with_service
def changes_command(
    service: Service,
    *,
    since: str | None,
    until: str | None,
    broker: str | None,
    topic: str | None,
    cluster: str | None,
    kinds: tuple[str, ...],
    actor: str | None,
    source: str | None,
    limit: int | None,
    last: int | None,
    follow: bool,
    form: Form,
) -> None:
    """Print the changes of the route table and the refused requests, oldest first.

    Each line: time, change, value before -> after, actor, and reason. Without --since, the history from its
    beginning; with --follow alone, only new entries. A time without a zone, such as 03:12, is that of this machine.

    \b
    routebook changes --since 10m --broker broker-a
    routebook changes --until 03:12 --last 20
    """
    if last is not None and (follow or limit is not None):
        raise click.UsageError("--last cannot be combined with --follow or --limit.")
    given = {
        "since": parse_when(since),
        "until": parse_when(until),
        "broker": broker,
        "topic": topic,
        "cluster": cluster,
        "kind": list(kinds) or None,
        "actor": actor,
        "from": source,
    }
    params = {name: value for name, value in given.items() if value is not None}
    entries: Iterator[dict[str, Any]]
    if follow:
        events = _follow(service, "/v1/changes", params | {"follow": "true"}, "")
        entries = (json.loads(event.data) for event in events)
    else:
        entries = _pages(service, params, newest_first=last is not None)
    shown: Iterator[dict[str, Any]] = (
        entry for entry in entries if kinds or not form.is_table or entry["kind"] not in QUIET_KINDS
    )
    if last is not None:
        shown = iter(list(islice(shown, last))[::-1])
    is_empty = True
    for entry in islice(shown, limit):
        is_empty = False
        if form.is_table:
            click.echo(line_of(entry))
        else:
            form.print_entry(entry)
    if is_empty and form.is_table and not follow:
        click.echo("No change in the history matches.", err=True)


def _pages(service: Service, params: dict[str, Any], *, newest_first: bool) -> Iterator[dict[str, Any]]:
    cursor: str | None = None
    params = params | {"limit": _PAGE, "order": "desc" if newest_first else "asc"}
    while True:
        page = service.request("GET", "/v1/changes", params=params | {"cursor": cursor})
        if page["missing"]:
            missing = page["missing"]
            click.echo(
                f"Versions {missing['from_version']} to {missing['to_version']} are no longer in the history.", err=True
            )
        yield from page["changes"]
        cursor = page["next_cursor"]
        if not page["has_more"]:
            return


def line_of(entry: dict[str, Any]) -> str:
    number = "" if entry["version"] is None else f"#{entry['version']} "
    origin = f" from {entry['source']}" if entry.get("source") else ""
    cause = f", {entry['cause']}" if entry.get("cause") else ""
    verb = f" ({entry['verb']})" if entry.get("verb") and entry["version"] is not None else ""
    what = f"{moment_text(entry['ms'])}  {number}{entry['kind']}  {describe_change(entry)}"
    return printable(f"{what}  by {entry.get('actor')}{origin}{verb}{cause}")


# -- server-sent events


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: str
    last_id: str


def _follow(
    service: Service, path: str, params: dict[str, Any], last_id: str, announcement: str = ""
) -> Iterator[Event]:
    """Yields events without an end. After a lost connection it resumes behind the last event."""
    pause_s, has_connected = _PAUSE_S, False
    timeout = httpx.Timeout(_SILENCE_S, connect=5.0)
    while True:
        headers = {"accept": "text/event-stream"} | ({"last-event-id": last_id} if last_id else {})
        try:
            with service.http.stream("GET", path, params=params, headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    raise error_of(answer)
                has_connected, pause_s = True, _PAUSE_S
                if announcement:
                    click.echo(f"{announcement} {service.url}; Ctrl-C stops.", err=True)
                for event in parse_events(answer.iter_lines()):
                    last_id = event.last_id or last_id
                    yield event
        except httpx.TransportError:
            if not has_connected:
                with service.connection_errors():
                    raise
        click.echo(f"The connection ended; reconnecting in {pause_s:g} s.", err=True)
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


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


# -- watch


MAX_COMPARED: Final = 50_000
"""Topics whose routes are loaded at the start of a watch of all topics."""


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
    what = f"Watching {topic or 'all topics'} at"
    for event in _follow(service, "/v1/watch", {"topic": topic} if topic else {}, after, what):
        _print(event, routes, form, full=full)


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
