"""`routebook pipeline run compact|vacuum|snapshot|rebase|check`"""

from dataclasses import asdict
from typing import Any

import click
from pyspark.sql import SparkSession

from routebook_pipeline.answers.statement import integrity_line
from routebook_pipeline.cli.options import Site
from routebook_pipeline.cli.outlet import answers_into
from routebook_pipeline.cli.outputs import print_json
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.cli.run import WITHOUT_SPARK
from routebook_pipeline.cli.running import spark_for
from routebook_pipeline.errors import AnswerIsNoError
from routebook_pipeline.lake import upkeep
from routebook_pipeline.lake.tables import Lake


def run_upkeep(site: Site, what: str, *, json_: bool, out: str | None) -> int:
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
        raise AnswerIsNoError(f"The answer is no: {why}.")
    return 0


_Done = tuple[dict[str, Any], list[str], str]
"""For programs, for people, and why the answer is no."""


def _files(lake: Lake, what: str, progress: Progress) -> _Done:
    if what == "compact":
        done = upkeep.compact(lake, say=progress.log)
        return asdict(done), [f"{done.joined} files joined into {done.into}"], ""
    deleted = upkeep.vacuum(lake, say=progress.log)
    return {"deleted": deleted}, [f"{deleted} files deleted"], ""


def _with_spark(spark: SparkSession, lake: Lake, site: Site, what: str, progress: Progress) -> _Done:
    if what == "snapshot":
        days = upkeep.snapshot(spark, lake, say=progress.log)
        return {"days": days}, [f"{len(days)} snapshots made{': ' if days else ''}{', '.join(days)}"], ""
    if what == "rebase":
        done = upkeep.rebase(spark, lake, url_env=site.url_env)
        lines = [
            f"{one.stream}: version {one.old_version} was the last; era {one.era} begins at version {one.first_version}"
            for one in done
        ]
        return {"rebased": [asdict(one) for one in done]}, lines, ""
    found = upkeep.check(spark, lake)
    told = {"ok": found.ok, "rows": found.rows, "problems": found.problems, "integrity": found.eras}
    return told, [integrity_line(found.eras), *found.problems], "" if found.ok else "the lake is not whole"
