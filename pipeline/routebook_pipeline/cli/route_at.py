"""`routebook pipeline route-at TOPIC`"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from routebook_pipeline.answers.coverage import HistoryExtent, instant_of_version, resolve_instant
from routebook_pipeline.cli.options import PARTIAL, CommonOptions, refuse_flags, when_option, with_common_options
from routebook_pipeline.cli.output import answer_output, format_permission, out_option, print_json, print_rows
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import NegativeAnswerError, WrongUsageError
from routebook_pipeline.history import Instant
from routebook_pipeline.times import When, iso

if TYPE_CHECKING:
    from routebook_pipeline.answers.computation import Doubt, RouteAnswer

COLUMNS: Final = ("cluster", "broker", "role", "address", "read", "write", "perm")


@click.command("route-at", short_help="Show where a topic was at some time.")
@click.argument("topic")
@when_option("--at", "at", help="2026-05-01T12:00Z, -2h or now. Default: the last complete millisecond.")
@click.option(
    "--version", type=click.IntRange(min=1), default=None, help="After this version, as in `X-Routebook-Version`."
)
@click.option(
    "--era",
    type=click.IntRange(min=0),
    default=None,
    help="The era of --version, if a fork made versions repeat. Default: the newest.",
)
@click.option(
    "--json",
    "json_",
    is_flag=True,
    help="Print the route like the service's answer, and how certain it is.",
)
@out_option
@with_common_options
def command(common: CommonOptions, *, topic: str, json_: bool, out: str | None, **when: Any) -> int:
    """Where was a topic at some time? Ends with 1 if it had no route, or if nothing is known about that time.

    With --version, the answer is the route that every worker gave at that version (without acting masters). With --at,
    it includes everything that happened up to that millisecond.
    """
    if when["at"] is not None and when["version"] is not None:
        raise WrongUsageError("Give a point in time (--at) or a version (--version), not both.")
    if when["era"] is not None and when["version"] is None:
        raise WrongUsageError("--era needs --version.")
    if when["version"] is not None:
        refuse_flags(PARTIAL, "it is for a time (--at) after the end of the history. A version exists or it does not.")
    from routebook_pipeline.answers.computation import route_at
    from routebook_pipeline.cli.spark import open_lake, quick_start, spark_session

    with Progress() as progress:
        lake, extent = open_lake(common, progress)
        resolved = _resolve(extent, allow_partial=common.allow_partial, **when)
        with spark_session(common, progress, quick_start(common, lake)) as spark:
            progress.show(f"finding the route of {topic}")
            found = route_at(spark, lake, extent, topic, instant=resolved.instant, log=progress.log)
    if json_:
        with answer_output(out):
            print_json(_as_json(topic, resolved, extent, found))
    elif found.route is not None:
        with answer_output(out):
            _print_route(found.rows)
            certainty = f"NOT certain: {found.doubt}" if found.doubt else "certain"
            click.echo(f"\nat {resolved.description}, complete until {iso(extent.complete_until_ms)}, {certainty}")
    if found.route is None:
        uncertain = f" It may have had one: {found.doubt}." if found.doubt else ""
        raise NegativeAnswerError(f"{topic!r} had no route at {resolved.description}.{uncertain}")
    return 0


@dataclass(frozen=True)
class _ResolvedInstant:
    instant: Instant
    description: str
    json: dict[str, Any]
    partial: bool


def _resolve(
    extent: HistoryExtent, *, at: When | None, version: int | None, era: int | None, allow_partial: bool
) -> _ResolvedInstant:
    if version is not None:
        instant = instant_of_version(extent, version, era)
        named = {"version": version, "era": extent.newest[0] if era is None else era}
        return _ResolvedInstant(instant, f"version {version}", named, partial=False)
    ms, partial = resolve_instant(extent, at, allow_partial=allow_partial)
    description = f"{iso(ms)}{' (PARTIAL: earlier than asked)' if partial else ''}"
    return _ResolvedInstant(Instant(ms=ms), description, {"at": iso(ms)}, partial)


def _as_json(topic: str, resolved: _ResolvedInstant, extent: HistoryExtent, found: "RouteAnswer") -> dict[str, Any]:
    """The route like the service's answer; without a route, its lists are empty."""
    doubt = found.doubt
    return {
        **(found.route or {"brokerDatas": [], "queueDatas": []}),
        "topic": topic,
        **resolved.json,
        "since": None if extent.since_ms is None else iso(extent.since_ms),
        "complete_until": iso(extent.complete_until_ms),
        "partial": resolved.partial,
        "certain": doubt is None,
        "missing": None if doubt is None else _missing(doubt),
    }


def _missing(doubt: "Doubt") -> dict[str, Any]:
    fork = {} if doubt.fork is None else {"fork": {"from_version": doubt.fork[0], "to_version": doubt.fork[1]}}
    return {"from_version": doubt.first, "to_version": doubt.last, **fork}


def _print_route(rows: list[dict[str, Any]]) -> None:
    """One line for each broker."""
    lines = []
    for row in rows:
        perm = format_permission(row["perm"])
        for broker_id, address in sorted(row["addresses"].items()):
            role = "master" if broker_id == 0 else f"slave {broker_id}"
            values = (row["cluster"], row["broker"], role, address, row["read_queues"], row["write_queues"], perm)
            lines.append(dict(zip(COLUMNS, values, strict=True)))
    print_rows(COLUMNS, lines)
