"""`routebook pipeline route-at TOPIC`"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from routebook_pipeline.answers.coverage import HistoryExtent, instant_of_version, resolve_instant
from routebook_pipeline.cli.options import PARTIAL, Site, refuse, when_option, with_site
from routebook_pipeline.cli.output import answers_into, out_option, print_json, print_rows
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import NegativeAnswerError, WrongUsageError
from routebook_pipeline.history import Instant
from routebook_pipeline.times import When, iso

if TYPE_CHECKING:
    from routebook_pipeline.answers.route_at import RouteAnswer


@click.command("route-at")
@click.argument("topic")
@when_option("--at", "at", help="2026-05-01T12:00Z, -2h or now. Without: the newest that is complete.")
@click.option(
    "--version", type=click.IntRange(min=1), default=None, help="After this change, as `X-Routebook-Version` says."
)
@click.option(
    "--era",
    type=click.IntRange(min=0),
    default=None,
    help="Of --version, where a fork made versions repeat; else the newest.",
)
@click.option(
    "--json",
    "json_",
    is_flag=True,
    help="Print the route as the service would have answered it, and how certain it is.",
)
@out_option
@with_site
def command(site: Site, *, topic: str, json_: bool, out: str | None, **when: Any) -> int:
    """Where did a topic live then? Ends with 1 when it had no route, or when nothing is known of that time.

    By --version it is what any worker answered at that version (the acting master's treatment off); by --at, everything
    that had happened by then, that millisecond included.
    """
    if when["at"] is not None and when["version"] is not None:
        raise WrongUsageError("A point in time (--at) or a version (--version), not both.")
    if when["era"] is not None and when["version"] is None:
        raise WrongUsageError("--era goes with --version.")
    if when["version"] is not None:
        refuse(PARTIAL, "it is for a time (--at) that is later than the history. A version is there, or it is not.")
    from routebook_pipeline.answers.route_at import route_at
    from routebook_pipeline.cli.spark import open_lake, spark_for

    with Progress() as progress:
        lake, extent = open_lake(site, progress)
        asked = _settle(extent, allow_partial=site.allow_partial, **when)
        with spark_for(site, progress) as spark:
            progress.doing(f"finding the route of {topic}")
            found = route_at(spark, lake, extent, topic, instant=asked.instant, log=progress.log)
    if json_:
        with answers_into(out):
            print_json(_as_json(topic, asked, extent, found))
    elif found.route is not None:
        with answers_into(out):
            _print(found.rows)
            certainty = f"NOT certain: {found.doubt}" if found.doubt else "certain"
            click.echo(f"\nat {asked.called}, complete until {iso(extent.complete_until_ms)}, {certainty}")
    if found.route is None:
        unsure = f" It may have had one: {found.doubt}." if found.doubt else ""
        raise NegativeAnswerError(f"{topic!r} had no route at {asked.called}.{unsure}")
    return 0


@dataclass(frozen=True)
class _Asked:
    instant: Instant
    called: str
    said: dict[str, Any]
    """The same, for programs."""
    partial: bool


def _settle(
    extent: HistoryExtent, *, at: When | None, version: int | None, era: int | None, allow_partial: bool
) -> _Asked:
    if version is not None:
        instant = instant_of_version(extent, version, era)
        named = {"version": version, "era": extent.newest[0] if era is None else era}
        return _Asked(instant, f"version {version}", named, partial=False)
    ms, partial = resolve_instant(extent, at, allow_partial=allow_partial)
    called = f"{iso(ms)}{' (PARTIAL: earlier than asked)' if partial else ''}"
    return _Asked(Instant(ms=ms), called, {"at": iso(ms)}, partial)


def _as_json(topic: str, asked: _Asked, extent: HistoryExtent, found: "RouteAnswer") -> dict[str, Any]:
    """The route as the service's; lists are empty when there was none."""
    doubt = found.doubt
    return {
        **(found.route or {"brokerDatas": [], "queueDatas": []}),
        "topic": topic,
        **asked.said,
        "since": None if extent.since_ms is None else iso(extent.since_ms),
        "complete_until": iso(extent.complete_until_ms),
        "partial": asked.partial,
        "certain": doubt is None,
        "missing": None if doubt is None else {"from_version": doubt.first, "to_version": doubt.last},
    }


def _print(rows: list[dict[str, Any]]) -> None:
    lines = []
    for row in rows:
        for broker_id, address in sorted(row["addresses"].items()):
            role = "master" if broker_id == 0 else f"slave {broker_id}"
            perm = ("r" if row["perm"] & 4 else "-") + ("w" if row["perm"] & 2 else "-")
            lines.append(
                {
                    "cluster": row["cluster"],
                    "broker": row["broker"],
                    "role": role,
                    "address": address,
                    "read": row["read_queues"],
                    "write": row["write_queues"],
                    "perm": perm,
                }
            )
    print_rows(("cluster", "broker", "role", "address", "read", "write", "perm"), lines)
