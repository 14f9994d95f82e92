"""`routebook changes`: who changed what and when, and which requests were refused."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import click
import httpx

from routebook.cli.output import json_text, printable
from routebook.cli.service_client import Service, as_json, error_of, with_service
from routebook.cli.watch import parse_events
from routebook.model.change_text import describe_change

_PAGE: Final = 500
_SILENCE_S: Final = 35.0
"""The service sends a keep-alive every ten seconds; after this time without one, the connection is dead."""
_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 15.0
_QUIET_KINDS: Final = frozenset({"baseline-seat", "baseline-queues"})
"""They repeat the table and change nothing; shown only when asked for with --kind."""


@click.command("changes")
@click.option("--since", metavar="WHEN", help="Begin after a version, an id, a time (ISO 8601) or a duration (10m).")
@click.option("--until", metavar="WHEN", help="End at a version, an id, a time or a duration before now.")
@click.option("--broker", metavar="NAME", help="Only changes of this broker name.")
@click.option("--topic", metavar="NAME", help="Only changes that name this topic.")
@click.option("--cluster", metavar="NAME", help="Only changes of this cluster.")
@click.option("--kind", "kinds", metavar="KIND", multiple=True, help="Only this kind, such as refused; repeatable.")
@click.option("--actor", metavar="NAME", help="Only changes by this identity, `operator`, `anonymous` or worker.")
@click.option("--from", "source", metavar="ADDRESS", help="Only requests from this address, with or without a port.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N lines.")
@click.option("--follow", is_flag=True, help="Continue with new changes until Ctrl-C.")
@as_json
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
    follow: bool,
    json_: bool,
) -> None:
    """Print the changes of the route table and the refused requests, oldest first.

    Each line: time, change, value before -> after, actor, and reason. Without --since, the history from its
    beginning; with --follow alone, only new entries. JSON: one entry a line.
    """
    given = {
        "since": since,
        "until": until,
        "broker": broker,
        "topic": topic,
        "cluster": cluster,
        "kind": list(kinds) or None,
        "actor": actor,
        "from": source,
    }
    params = {name: value for name, value in given.items() if value is not None}
    entries = _follow(service, params) if follow else _pages(service, params)
    number = 0
    for entry in entries:
        if not kinds and not json_ and entry["kind"] in _QUIET_KINDS:
            continue
        click.echo(json_text(entry) if json_ else line_of(entry))
        number += 1
        if number == limit:
            return


def _pages(service: Service, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    cursor: str | None = None
    while True:
        page = service.request("GET", "/v1/changes", params=params | {"limit": _PAGE, "cursor": cursor})
        if page["missing"]:
            missing = page["missing"]
            click.echo(
                f"Versions {missing['from_version']} to {missing['to_version']} are no longer in the history.", err=True
            )
        yield from page["changes"]
        cursor = page["next_cursor"]
        if not page["has_more"]:
            return


def _follow(service: Service, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    last_id, pause_s, has_connected = "", _PAUSE_S, False
    while True:
        headers = {"accept": "text/event-stream"} | ({"last-event-id": last_id} if last_id else {})
        timeout = httpx.Timeout(_SILENCE_S, connect=5.0)
        try:
            with service.http.stream(
                "GET", "/v1/changes", params=params | {"follow": "true"}, headers=headers, timeout=timeout
            ) as answer:
                if not answer.is_success:
                    raise error_of(answer)
                has_connected, pause_s = True, _PAUSE_S
                for event in parse_events(answer.iter_lines()):
                    last_id = event.last_id or last_id
                    yield json.loads(event.data)
        except httpx.TransportError:
            if not has_connected:
                with service.connection_errors():
                    raise
        click.echo(f"The connection ended; reconnecting in {pause_s:g} s.", err=True)
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def line_of(entry: dict[str, Any]) -> str:
    moment = datetime.fromtimestamp(entry["ms"] / 1000, UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")
    number = "" if entry["version"] is None else f"#{entry['version']} "
    origin = f" from {entry['source']}" if entry.get("source") else ""
    cause = f", {entry['cause']}" if entry.get("cause") else ""
    verb = f" ({entry['verb']})" if entry.get("verb") and entry["version"] is not None else ""
    text = f"{moment}Z  {number}{entry['kind']}  {describe_change(entry)}  by {entry.get('actor')}{origin}{verb}{cause}"
    return printable(text)
