"""`routebook pipeline run`: one of the questions, or maintenance of the lake."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from routebook_pipeline.answers.catalogue import QUESTIONS, Question, RowSelection, find_question
from routebook_pipeline.answers.coverage import integrity_line, resolve_window
from routebook_pipeline.cli.options import (
    PARTIAL,
    CommonOptions,
    json_option,
    refuse_flags,
    with_common_options,
    with_thresholds,
    with_window,
)
from routebook_pipeline.cli.output import CSV, JSON, TABLE, answer_output, out_option, print_answer, print_json
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import NegativeAnswerError, WrongUsageError
from routebook_pipeline.history import ERA_SHIFT, Thresholds
from routebook_pipeline.times import When

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from routebook_pipeline.lake.tables import Lake

MAINTENANCE = {
    "compact": "join the small files of closed days",
    "vacuum": "delete files that no version of the last week refers to",
    "snapshot": "store the state at the start of each closed day, so that questions need not read everything",
    "rebase": "accept another history after RB_FORK: the lake keeps what it has, and a new era begins",
    "check": "read all changes and check that no version is missing or doubled; check that all other files exist",
}
WITHOUT_SPARK = frozenset({"compact", "vacuum"})

_QUESTION_FLAGS = {
    "start": "--from",
    "end": "--to",
    "level": "--by",
    "thresholds": "--threshold",
    "csv_": "--csv",
    "parquet": "--parquet",
    "fail": "--fail",
    "cluster": "--cluster",
    "broker": "--broker",
    "topic": "--topic",
    "top": "--top",
    "worst_first": "--worst-first",
    "after_ord": "--after",
    "follow": "--follow",
}
"""Options that only questions have."""
_SPARK_FLAGS = {"master": "--master", "conf": "--conf"}
_STORE_FLAGS = {"url_env": "--url-env"}


def _complete_name(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    descriptions = {question.name: question.description for question in QUESTIONS.values()} | MAINTENANCE
    return [CompletionItem(name, help=text) for name, text in descriptions.items() if name.startswith(typed)]


def _complete_level(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    question = find_question(ctx.params.get("question") or "")
    return [CompletionItem(level) for level in (question.levels if question else ()) if level.startswith(typed)]


def _parse_after(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    era, colon, version = text.partition(":")
    if not (colon and era.isdigit() and version.isdigit()):
        raise WrongUsageError(f"--after {text!r} is not ERA:VERSION, such as 0:9120.")
    return int(era) * ERA_SHIFT + int(version)


def _help() -> str:
    """Paragraphs after `\\b` are not wrapped."""
    questions = {
        question.name: question.description
        + (f" (by {', '.join(question.levels)})" if len(question.levels) > 1 else "")
        for question in QUESTIONS.values()
    }
    return f"""Answer a question about a window of time, or maintain the lake.

\b
Questions:
{_help_list(questions)}

\b
Maintenance:
{_help_list(MAINTENANCE)}

Each answer says until when the history is complete, and whether it has holes or unreadable entries.

\b
routebook pipeline run availability --from -7d
routebook pipeline run failures --by seat --from 2026-05-01T00:00Z --to 2026-06-01T00:00Z --json
"""


def _help_list(descriptions: dict[str, str]) -> str:
    width = max(len(name) for name in descriptions)
    return "\n".join(f"  {name:{width}}  {text}" for name, text in descriptions.items())


@click.command("run", short_help="Answer a question, or maintain the lake.", help=_help())
@click.argument("question", shell_complete=_complete_name)
@with_window
@click.option("--by", "level", default=None, metavar="LEVEL", shell_complete=_complete_level, help="seat, group, …")
@click.option("--cluster", default=None, metavar="NAME", help="Only rows about this cluster.")
@click.option("--broker", default=None, metavar="NAME", help="Only rows about the brokers with this name.")
@click.option("--topic", default=None, metavar="NAME", help="Only rows about this topic (route, route-diff).")
@click.option("--top", type=click.IntRange(min=1), default=None, metavar="N", help="Only the first N rows.")
@click.option("--worst-first", is_flag=True, help="Sort by what is worst instead of by name.")
@click.option(
    "--after",
    "after_ord",
    default=None,
    callback=_parse_after,
    metavar="ERA:VERSION",
    help="events: only entries after this one.",
)
@click.option("--follow", is_flag=True, help="events: continue with what happens, until Ctrl-C.")
@with_thresholds
@json_option
@click.option("--csv", "csv_", is_flag=True, help="Print CSV.")
@click.option("--parquet", default=None, metavar="OUT", help="Write one Parquet file.")
@out_option
@click.option(
    "--fail", is_flag=True, help="End with 1 if an objective was missed, an anomaly found, or the history is not ok."
)
@with_common_options
def command(common: CommonOptions, question: str, json_: bool, csv_: bool, parquet: str | None, **given: Any) -> int:
    if json_ + csv_ + (parquet is not None) > 1:
        raise WrongUsageError("Only one form of answer is possible: --json, --csv or --parquet OUT.")
    if given.pop("follow"):
        return _follow(common, question, json_=json_, **given)
    if parquet is not None and given["out"] is not None:
        raise WrongUsageError("--parquet OUT names its file itself; --out is for the other forms. Leave one out.")
    found = find_question(question)
    if found is not None:
        return _answer(common, found, JSON if json_ else CSV if csv_ else TABLE, parquet, **given)
    if question not in MAINTENANCE:
        known = ", ".join([*QUESTIONS, *MAINTENANCE])
        raise WrongUsageError(
            f"There is no question {question!r}. Allowed: {known}. For the route of one topic, use `route-at`."
        )
    _check_maintenance_flags(question)
    return run_maintenance(common, question, json_=json_, out=given["out"])


def _follow(common: CommonOptions, question: str, *, start: When | None, json_: bool, **given: Any) -> int:
    if question != "events":
        raise WrongUsageError(f"--follow is for events, not for {question}.")
    allowed = ("start", "cluster", "broker", "topic", "follow")
    others = {name: flag for name, flag in _QUESTION_FLAGS.items() if name not in allowed} | {"out": "--out"}
    refuse_flags(others, "--follow prints events, as lines or with --json as objects, until it is ended.")
    from routebook_pipeline.cli.follow import follow_events

    selection = RowSelection(cluster=given["cluster"], broker=given["broker"], topic=given["topic"])
    return follow_events(common, selection, start, json_=json_)


def _answer(
    common: CommonOptions,
    question: Question,
    form: str,
    parquet: str | None,
    *,
    start: When | None,
    end: When | None,
    level: str | None,
    thresholds: Thresholds,
    out: str | None,
    fail: bool,
    **selected: Any,
) -> int:
    level = question.resolve_level(level)
    selection = RowSelection(**selected)
    if selection.after_ord is not None and question.name != "events":
        raise WrongUsageError(f"--after is for events, not for {question.name}.")
    if start and end and start.ms is not None and end.ms is not None and start.ms > end.ms:
        raise WrongUsageError("The window ends before it starts. Exchange --from and --to.")
    from routebook_pipeline.answers.computation import COMPUTATIONS, AnswerContext, answer, compute, failure_reason
    from routebook_pipeline.cli.spark import open_lake, quick_start, spark_session

    selection.check(question, level, COMPUTATIONS[question.name, level].schema.names)
    with Progress() as progress:
        lake, extent = open_lake(common, progress)
        resolved = resolve_window(extent, start, end, allow_partial=common.allow_partial)
        with spark_session(common, progress, quick_start(common, lake)) as spark:
            progress.show(f"computing {question.name}")
            context = AnswerContext(lake, extent, resolved, thresholds, progress.log, selection)
            computed = compute(answer(spark, context, question, level))
            progress.clear()
            with answer_output(out):
                print_answer(computed, form, parquet)
    reason = failure_reason(question.name, computed.rows, thresholds) if fail or question.name == "integrity" else ""
    if fail and not computed.is_ok:
        reason = reason or "the history is not ok"
    if reason:
        raise NegativeAnswerError(f"The answer is no: {reason}.")
    return 0


def _check_maintenance_flags(name: str) -> None:
    refuse_flags(_QUESTION_FLAGS | PARTIAL, f"`run {name}` is about the whole lake. Allowed: --json, --out.")
    if name in WITHOUT_SPARK:
        refuse_flags(_SPARK_FLAGS, f"`run {name}` does not start Spark.")
    if name != "rebase":
        refuse_flags(_STORE_FLAGS, f"`run {name}` does not use the store.")


@dataclass(frozen=True)
class _Result:
    json: dict[str, Any]
    lines: list[str]
    failure: str = ""
    """Why the answer is no; empty when it is not."""


def run_maintenance(common: CommonOptions, name: str, *, json_: bool, out: str | None) -> int:
    from routebook_pipeline.cli.spark import spark_session
    from routebook_pipeline.lake.tables import Lake

    lake = Lake(common.lake, common.namespace)
    # Reports a lake that does not exist before Spark starts.
    lake.changes.pin()
    with Progress() as progress:
        progress.show(name)
        if name in WITHOUT_SPARK:
            result = _compact_or_vacuum(lake, name, progress)
        else:
            with spark_session(common, progress) as spark:
                progress.show(name)
                result = _run_with_spark(spark, lake, common, name, progress)
    with answer_output(out):
        if json_:
            print_json(result.json)
        else:
            click.echo("\n".join(result.lines))
    if result.failure:
        raise NegativeAnswerError(f"The answer is no: {result.failure}.")
    return 0


def _compact_or_vacuum(lake: "Lake", name: str, progress: Progress) -> _Result:
    from routebook_pipeline.lake.maintenance import compact, vacuum

    if name == "compact":
        done = compact(lake, log=progress.log)
        return _Result(asdict(done), [f"{done.joined} files joined into {done.into}"])
    deleted = vacuum(lake, log=progress.log)
    return _Result({"deleted": deleted}, [f"{deleted} files deleted"])


def _run_with_spark(
    spark: "SparkSession", lake: "Lake", common: CommonOptions, name: str, progress: Progress
) -> _Result:
    from routebook_pipeline.lake.maintenance import check, snapshot
    from routebook_pipeline.lake.rebase import rebase

    if name == "snapshot":
        days = snapshot(spark, lake, log=progress.log)
        return _Result({"days": days}, [f"{len(days)} snapshots built{': ' if days else ''}{', '.join(days)}"])
    if name == "rebase":
        rebased = rebase(spark, lake, url_env=common.url_env)
        lines = [
            f"{one.stream}: version {one.old_version} was the last; era {one.era} begins at version {one.first_version}"
            for one in rebased
        ]
        return _Result({"rebased": [asdict(one) for one in rebased]}, lines)
    checked = check(spark, lake)
    return _Result(
        {"ok": checked.ok, "rows": checked.rows, "problems": checked.problems, "integrity": checked.eras},
        [integrity_line(checked.eras), *checked.problems],
        "" if checked.ok else "the lake is not whole",
    )
