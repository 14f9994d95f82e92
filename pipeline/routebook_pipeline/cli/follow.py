"""`run events --follow`: prints events as the lake grows.

The lake's version is read without Spark. Spark is asked only when it has changed: in the warm session if there is one,
which is free for other commands in between, else in a Spark of this command.
"""

import io
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from routebook_pipeline.answers.catalogue import QUESTIONS, RowSelection
from routebook_pipeline.answers.computation import AnswerContext, answer, compute, history_extent
from routebook_pipeline.answers.coverage import resolve_window
from routebook_pipeline.cli import warm
from routebook_pipeline.cli.options import CommonOptions, given_flags
from routebook_pipeline.cli.output import printable
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.cli.spark import open_lake, spark_session
from routebook_pipeline.history import ERA_SHIFT, HOUR_MS, MINUTE_MS
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.times import When, iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PERIOD_S: Final = 1.0
_EVENTS: Final = QUESTIONS["events"]


def follow_events(common: CommonOptions, selection: RowSelection, start: When | None, *, json_: bool) -> int:
    """Until Ctrl-C. Starts with the events since `start`, by default those of the last hour."""
    with Progress() as progress, ExitStack() as own_spark:
        lake, extent = open_lake(common, progress)
        start_ms = extent.complete_until_ms - HOUR_MS if start is None else start.on_clock(extent.now_ms)
        source = _Source(common, lake, progress, own_spark)
        last_ord, seen_version = 0, -1
        while True:
            version = lake.changes.pin().version
            if version != seen_version:
                for row in source.events(selection, start_ms, last_ord):
                    click.echo(json.dumps(row, ensure_ascii=False) if json_ else event_line(row))
                    last_ord = row["era"] * ERA_SHIFT + row["version"]
                    # The window moves along, so that a minute of history is read and not everything since the start.
                    # An entry may be earlier than the one before it, if the clock of the store was set back.
                    start_ms = max(start_ms, row["ms"] - MINUTE_MS)
                seen_version = version
            time.sleep(PERIOD_S)


class _Source:
    def __init__(self, common: CommonOptions, lake: Lake, progress: Progress, own_spark: ExitStack) -> None:
        self._common, self._lake, self._progress, self._stack = common, lake, progress, own_spark
        self._spark: SparkSession | None = None
        self._may_be_warm = not given_flags(warm.OWN_SPARK)

    def events(self, selection: RowSelection, start_ms: int, last_ord: int) -> Sequence[Mapping[str, Any]]:
        if self._spark is None and self._may_be_warm:
            found = self._ask_session(selection, start_ms, last_ord)
            if found is not None:
                return found
        if self._spark is None:
            self._spark = self._stack.enter_context(spark_session(self._common, self._progress))
            self._progress.clear()
        return self._ask_spark(self._spark, selection, start_ms, last_ord)

    def _ask_session(self, selection: RowSelection, start_ms: int, last_ord: int) -> Sequence[Mapping[str, Any]] | None:
        common = self._common
        words = ["run", _EVENTS.name, "--json", "--allow-partial", "--from", iso(start_ms)]
        words += ["--after", f"{last_ord // ERA_SHIFT}:{last_ord % ERA_SHIFT}"]
        words += ["--lake", common.lake, "--namespace", common.namespace, "--url-env", common.url_env]
        for name, value in selection.names.items():
            words += [f"--{name}", value]
        out = io.StringIO()
        code = warm.run_warm(words, common.url_env, out)
        if code is None:
            return None
        if code:
            raise click.exceptions.Exit(code)
        rows: list[dict[str, Any]] = json.loads(out.getvalue())["rows"]
        return rows

    def _ask_spark(
        self, spark: "SparkSession", selection: RowSelection, start_ms: int, last_ord: int
    ) -> Sequence[Mapping[str, Any]]:
        extent = history_extent(self._lake, self._common.store_variable)
        resolved = resolve_window(extent, When(ms=start_ms), None, allow_partial=True)
        chosen = RowSelection(selection.cluster, selection.broker, selection.topic, after_ord=last_ord)
        context = AnswerContext(self._lake, extent, resolved, log=self._progress.log, selection=chosen)
        return compute(answer(spark, context, _EVENTS, "event")).rows


def event_line(row: Mapping[str, Any]) -> str:
    """One event in words: when, about what, what happened, and who did it."""
    names = [str(row[name]) for name in ("cluster", "broker", "broker_id") if row[name] is not None]
    subject = " ".join(filter(None, ["/".join(names), row["topic"]]))
    change = f"{row['before']} -> {row['after']}" if row["before"] and row["after"] else row["after"] or ""
    cause = f"({row['cause']})" if row["cause"] else ""
    by = f"by {row['actor']}" if row["actor"] else ""
    source = f"from {row['source']}" if row["source"] else ""
    parts = [iso(row["ms"]), str(row["version"]), row["kind"], subject, change, cause, by, source]
    return printable("  ".join(filter(None, parts)))
