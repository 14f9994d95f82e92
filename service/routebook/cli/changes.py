"""`routebook changes`: who changed what and when, and which requests were refused."""

import json
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import click
import httpx

from routebook.cli.command import command, complete
from routebook.cli.forms import Form, with_output
from routebook.cli.output import printable
from routebook.cli.readable import moment_text, parse_when
from routebook.cli.service_client import Service, error_of, with_service
from routebook.cli.watch import parse_events
from routebook.model.change_text import describe_change

_PAGE: Final = 500
_SILENCE_S: Final = 35.0
"""The service sends a keep-alive every ten seconds; after this time without one, the connection is dead."""
_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 15.0
_QUIET_KINDS: Final = frozenset({"baseline-seat", "baseline-queues"})
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
    entries = _follow(service, params) if follow else _pages(service, params, newest_first=last is not None)
    shown: Iterator[dict[str, Any]] = (
        entry for entry in entries if kinds or not form.is_table or entry["kind"] not in _QUIET_KINDS
    )
    if last is not None:
        shown = iter(list(islice(shown, last))[::-1])
    for entry in islice(shown, limit):
        if form.is_table:
            click.echo(line_of(entry))
        else:
            form.print_entry(entry)


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
    number = "" if entry["version"] is None else f"#{entry['version']} "
    origin = f" from {entry['source']}" if entry.get("source") else ""
    cause = f", {entry['cause']}" if entry.get("cause") else ""
    verb = f" ({entry['verb']})" if entry.get("verb") and entry["version"] is not None else ""
    what = f"{moment_text(entry['ms'])}  {number}{entry['kind']}  {describe_change(entry)}"
    return printable(f"{what}  by {entry.get('actor')}{origin}{verb}{cause}")
