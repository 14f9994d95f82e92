"""`routebook pipeline route-at TOPIC`"""

from typing import Any

import click

from routebook_pipeline.answers.windows import Reach, instant_of_version, settle_instant
from routebook_pipeline.cli.options import Site, with_site
from routebook_pipeline.cli.outlet import answers_into, out_option
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.cli.windows import when_option
from routebook_pipeline.errors import AnswerIsNoError, WrongUsageError
from routebook_pipeline.history import Instant
from routebook_pipeline.times import When, iso


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
@click.option("--json", "json_", is_flag=True, help="Print the route as the service would have answered it.")
@out_option
@with_site
def command(site: Site, *, topic: str, json_: bool, out: str | None, **when: Any) -> int:
    """Where did a topic live then? Ends with 1 when it had no route.

    By --version it is what any worker answered at that version (the acting master's treatment off); by --at, everything
    that had happened by then, that millisecond included.
    """
    if when["at"] is not None and when["version"] is not None:
        raise WrongUsageError("A point in time (--at) or a version (--version), not both.")
    if when["era"] is not None and when["version"] is None:
        raise WrongUsageError("--era goes with --version.")
    from routebook_pipeline.answers.routes import route_at  # noqa: PLC0415 Spark's modules take a second
    from routebook_pipeline.cli.asking import open_lake  # noqa: PLC0415
    from routebook_pipeline.cli.outputs import print_json  # noqa: PLC0415
    from routebook_pipeline.cli.running import spark_for  # noqa: PLC0415

    with Progress() as progress:
        lake, reach = open_lake(site, progress)
        instant, called = _settle(reach, allow_partial=site.allow_partial, **when)
        with spark_for(site, progress) as spark:
            progress.doing(f"finding the route of {topic}")
            found = route_at(spark, lake, topic, instant, progress.log)
    doubt = ", ".join(f"versions {one.first}-{one.last}" for one in found.doubts)
    if found.route is None:
        unsure = f" It may have: {doubt} are missing." if doubt else ""
        raise AnswerIsNoError(f"{topic!r} had no route at {called}.{unsure}")
    certainty = f"NOT certain: {doubt} are missing" if doubt else "certain"
    with answers_into(out):
        if json_:
            print_json(found.route)
        else:
            _print(found.rows)
            click.echo()
        click.echo(f"at {called}, complete until {iso(reach.complete_until_ms)}, {certainty}", err=json_)
    return 0


def _settle(
    reach: Reach, *, at: When | None, version: int | None, era: int | None, allow_partial: bool
) -> tuple[Instant, str]:
    """And what it is called."""
    if version is not None:
        return instant_of_version(reach, version, era), f"version {version}"
    ms, partial = settle_instant(reach, at, allow_partial=allow_partial)
    return Instant(ms=ms), f"{iso(ms)}{' (PARTIAL: earlier than asked)' if partial else ''}"


def _print(rows: list[dict[str, Any]]) -> None:
    from routebook_pipeline.cli.tables import print_rows  # noqa: PLC0415

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
