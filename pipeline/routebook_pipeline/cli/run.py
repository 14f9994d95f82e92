"""`routebook pipeline run compact|vacuum|snapshot|rebase|check`

`routebook pipeline run QUESTION`, and the upkeep of the lake.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from routebook_pipeline.answers.catalogue import QUESTIONS, Question, find_question
from routebook_pipeline.answers.coverage import integrity_line
from routebook_pipeline.cli.options import PARTIAL, Site, refuse, with_site, with_thresholds, with_window
from routebook_pipeline.cli.output import answers_into, give, out_option, print_json
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import NegativeAnswerError, WrongUsageError
from routebook_pipeline.history import Thresholds
from routebook_pipeline.times import When

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from routebook_pipeline.lake.tables import Lake


UPKEEP = {
    "compact": "join the small files of closed days",
    "vacuum": "delete files that no version of the last week refers to",
    "snapshot": "keep the state at the start of each closed day, so that questions need not read from the beginning",
    "rebase": "accept another history after RB_FORK: what the lake holds stays, a new era begins",
    "check": "read all changes and prove that no version is missing or doubled; look for every other file",
}

WITHOUT_SPARK = frozenset({"compact", "vacuum"})

_OF_QUESTIONS = {
    "start": "--from",
    "end": "--to",
    "level": "--by",
    "thresholds": "--threshold",
    "csv_": "--csv",
    "parquet": "--parquet",
    "fail": "--fail",
}
"""Options that mean nothing to the upkeep of a lake."""

_OF_SPARK = {"master": "--master", "conf": "--conf"}
_OF_THE_STORE = {"url_env": "--url-env"}


def _names(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    known = {question.name: question.description for question in QUESTIONS.values()} | UPKEEP
    return [CompletionItem(name, help=description) for name, description in known.items() if name.startswith(typed)]


def _levels(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    question = find_question(ctx.params.get("question") or "")
    return [CompletionItem(level) for level in (question.levels if question else ()) if level.startswith(typed)]


def _list(known: dict[str, str]) -> str:
    width = max(len(name) for name in known)
    return "\b\n" + "\n".join(f"  {name:{width}}  {description}" for name, description in known.items())


def _question_help() -> dict[str, str]:
    return {
        question.name: question.description
        + (f" (by {', '.join(question.levels)})" if len(question.levels) > 1 else "")
        for question in QUESTIONS.values()
    }


@click.command(
    "run",
    short_help="Ask any of the twelve questions; look after the lake.",
    help=f"""Ask a question over a window of time, or look after the lake.

    \b
    Questions:
    {_list(_question_help())}

    \b
    Upkeep:
    {_list(UPKEEP)}

    Each answer says what it rests on: holes, unreadable entries, until when it is complete.

    \b
    routebook pipeline run availability --from -7d
    routebook pipeline run failures --by seat --from 2026-05-01T00:00Z --to 2026-06-01T00:00Z --json
    """.replace("    \b\n    \b\n", "    \b\n"),
)
@click.argument("question", shell_complete=_names)
@with_window
@click.option("--by", "level", default=None, metavar="LEVEL", shell_complete=_levels, help="seat, group, cluster, …")
@with_thresholds
@click.option("--json", "json_", is_flag=True, help="Print JSON, for programs.")
@click.option("--csv", "csv_", is_flag=True, help="Print CSV.")
@click.option("--parquet", default=None, metavar="OUT", help="Write one Parquet file.")
@out_option
@click.option(
    "--fail", is_flag=True, help="End with 1 when an objective is missed, an anomaly found or the history not ok."
)
@with_site
def command(site: Site, question: str, json_: bool, csv_: bool, parquet: str | None, **given: Any) -> int:
    if json_ + csv_ + (parquet is not None) > 1:
        raise WrongUsageError("One form of answer at a time: --json, --csv or --parquet OUT.")
    if parquet is not None and given["out"] is not None:
        raise WrongUsageError("--parquet OUT names its file itself; --out is for the other forms. Leave one out.")
    asked = find_question(question)
    if asked is not None:
        return _ask(site, asked, "json" if json_ else "csv" if csv_ else "table", parquet, **given)
    if question not in UPKEEP:
        known = ", ".join([*QUESTIONS, *UPKEEP])
        raise WrongUsageError(f"There is no question {question!r}. Allowed: {known}. One topic's route: `route-at`.")
    _check_upkeep(question)
    return run_upkeep(site, question, json_=json_, out=given["out"])


def _check_upkeep(what: str) -> None:
    refuse(_OF_QUESTIONS | PARTIAL, f"`run {what}` is about the whole lake. Allowed: --json, --out.")
    if what in WITHOUT_SPARK:
        refuse(_OF_SPARK, f"`run {what}` starts no Spark.")
    if what != "rebase":
        refuse(_OF_THE_STORE, f"`run {what}` does not ask the store.")


def _ask(
    site: Site,
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
) -> int:
    level = question.resolve_level(level)
    if start and end and start.ms is not None and end.ms is not None and start.ms > end.ms:
        raise WrongUsageError("The window ends before it starts. Exchange --from and --to.")
    from routebook_pipeline.answers.computation import AnswerContext, answer, compute, failure_reason
    from routebook_pipeline.answers.coverage import resolve_window
    from routebook_pipeline.cli.spark import open_lake, spark_for

    with Progress() as progress:
        lake, extent = open_lake(site, progress)
        resolved = resolve_window(extent, start, end, allow_partial=site.allow_partial)
        with spark_for(site, progress) as spark:
            progress.doing(f"computing {question.name}")
            taken = compute(
                answer(spark, AnswerContext(lake, extent, resolved, thresholds, progress.log), question, level)
            )
            progress.clear()
            with answers_into(out):
                give(taken, form, parquet)
    why = failure_reason(question.name, taken.rows, thresholds) if fail or question.name == "integrity" else ""
    if fail and not taken.is_ok:
        why = why or "the history is not ok"
    if why:
        raise NegativeAnswerError(f"The answer is no: {why}.")
    return 0


def run_upkeep(site: Site, what: str, *, json_: bool, out: str | None) -> int:
    from routebook_pipeline.cli.spark import spark_for
    from routebook_pipeline.lake.tables import Lake

    lake = Lake(site.lake, site.namespace)
    # A lake that is not there is said before Spark is started.
    lake.changes.pin()
    with Progress() as progress:
        progress.doing(what)
        if what in WITHOUT_SPARK:
            told, lines, why = _files(lake, what, progress)
        else:
            with spark_for(site, progress) as spark:
                progress.doing(what)
                told, lines, why = _with_spark(spark, lake, site, what, progress)
    with answers_into(out):
        if json_:
            print_json(told)
        else:
            click.echo("\n".join(lines))
    if why:
        raise NegativeAnswerError(f"The answer is no: {why}.")
    return 0


_Done = tuple[dict[str, Any], list[str], str]
"""For programs, for people, and why the answer is no."""


def _files(lake: "Lake", what: str, progress: Progress) -> _Done:
    from routebook_pipeline.lake.maintenance import compact, vacuum

    if what == "compact":
        done = compact(lake, log=progress.log)
        return asdict(done), [f"{done.joined} files joined into {done.into}"], ""
    deleted = vacuum(lake, log=progress.log)
    return {"deleted": deleted}, [f"{deleted} files deleted"], ""


def _with_spark(spark: "SparkSession", lake: "Lake", site: Site, what: str, progress: Progress) -> _Done:
    from routebook_pipeline.lake.maintenance import check, snapshot
    from routebook_pipeline.lake.rebase import rebase

    if what == "snapshot":
        days = snapshot(spark, lake, log=progress.log)
        return {"days": days}, [f"{len(days)} snapshots made{': ' if days else ''}{', '.join(days)}"], ""
    if what == "rebase":
        done = rebase(spark, lake, url_env=site.url_env)
        lines = [
            f"{one.stream}: version {one.old_version} was the last; era {one.era} begins at version {one.first_version}"
            for one in done
        ]
        return {"rebased": [asdict(one) for one in done]}, lines, ""
    found = check(spark, lake)
    told = {"ok": found.ok, "rows": found.rows, "problems": found.problems, "integrity": found.eras}
    return told, [integrity_line(found.eras), *found.problems], "" if found.ok else "the lake is not whole"
