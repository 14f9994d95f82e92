"""The same commands under `spark-submit`, and on a Spark cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from routebook.cli.main import run as routebook
from routebook_pipeline.history import DAY_MS
from routebook_pipeline.java import find_java_home
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.times import day_of
from tests.pipeline.cli.commands import ENTRIES, last_day, two_days
from tests.pipeline.cli.shell import Shell
from tests.pipeline.source.streams import Stream
from tests.support.spark_cluster import DRIVER_SETTINGS, SPARK_HOME, SparkCluster

pytestmark = pytest.mark.slow
TIMEOUT_S = 240


def test_spark_submit_runs_the_packaged_program(
    stream: Stream,
    environment: dict[str, str],
    midnight_ms: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As in docs/pipeline-commands.md: the answer is in its file, whatever Spark prints on standard output."""
    stream.append(two_days(midnight_ms))
    package, answer = tmp_path / "routebook.zip", tmp_path / "answers" / "integrity.json"
    assert routebook(["pipeline", "package", "--out", str(package)]) == 0
    program = capsys.readouterr().out.strip()

    def submit(*arguments: str) -> "subprocess.CompletedProcess[str]":
        options = ["--master", "local[2]", "--driver-memory", "1g", "--conf", "spark.sql.shuffle.partitions=3"]
        return subprocess.run(
            [SPARK_HOME / "bin" / "spark-submit", *options, "--py-files", package, program, *arguments],
            env={**os.environ, **environment, "JAVA_HOME": str(find_java_home()), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    ingested = submit("ingest", "--once")
    assert ingested.returncode == 0, ingested.stderr
    answered = submit("run", "integrity", *last_day(midnight_ms), "--json", "--out", str(answer))
    assert answered.returncode == 0, answered.stderr
    (era,) = json.loads(answer.read_text())["rows"]
    assert (era["entries"], era["last_version"], era["ok"]) == (24, ENTRIES, True)
    # The unreadable entry is in the first of the two days: the answer is no, and is written nevertheless.
    answered = submit("run", "integrity", "--from", "-4d", "--json", "--out", str(answer))
    assert answered.returncode == 1, answered.stderr
    (era,) = json.loads(answer.read_text())["rows"]
    assert (era["entries"], era["unreadable"]) == (ENTRIES, {"json": 1})
    refused = submit("run", "uptime")
    assert refused.returncode == 2, refused.stderr
    assert "There is no question" in refused.stderr + refused.stdout


def test_commands_fill_and_read_a_lake_on_a_cluster(
    stream: Stream, environment: dict[str, str], lake: Lake, midnight_ms: int, tmp_path: Path
) -> None:
    """The executors have only the parts of our package that the command sends them."""
    stream.append(two_days(midnight_ms))
    snapshots = [day_of(midnight_ms - DAY_MS), day_of(midnight_ms)]
    with SparkCluster(tmp_path / "cluster", environment) as cluster:
        on_cluster = [
            "--master",
            cluster.url,
            *(word for one in DRIVER_SETTINGS.items() for word in ("--conf", "=".join(one))),
        ]
        with Shell({**environment, **cluster.driver_environment}) as shell:
            ingested = shell.pipeline("ingest", "--once", *on_cluster)
            assert (ingested.code, ingested.out) == (0, "")
            answered = shell.pipeline(
                "run", "availability", "--by", "seat", *last_day(midnight_ms), "--json", *on_cluster
            )
            assert answered.code == 0, answered
            answer: dict[str, Any] = json.loads(answered.out)
            built = shell.pipeline("run", "snapshot", "--json", *on_cluster)
            assert (built.code, json.loads(built.out)["days"]) == (0, snapshots)
    position = lake.changes.pin().position
    assert position is not None
    assert position.version == ENTRIES
    assert [(row["broker"], row["availability"]) for row in answer["rows"]] == [("b", 1.0)]
    assert (answer["ok"], answer["partial"]) == (True, False)
