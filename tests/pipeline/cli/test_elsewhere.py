"""The same commands under `spark-submit`, and on a cluster of Spark's own."""

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
from tests.pipeline.cli.operator import ENTRIES, last_day, two_days
from tests.pipeline.cli.shell import Shell
from tests.pipeline.source.streams import Stream
from tests.support.spark_cluster import DRIVER_SETTINGS, SPARK_HOME, SparkCluster

pytestmark = pytest.mark.slow
PATIENCE_S = 240


def test_spark_submit_runs_the_packaged_program(
    stream: Stream,
    environment: dict[str, str],
    midnight_ms: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As docs/pipeline-commands.md has it: the answer is in its file, whatever Spark pours onto standard output."""
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
            timeout=PATIENCE_S,
            check=False,
        )

    ingested = submit("ingest", "--once")
    assert ingested.returncode == 0, ingested.stderr
    asked = submit("run", "integrity", *last_day(midnight_ms), "--json", "--out", str(answer))
    assert asked.returncode == 0, asked.stderr
    (era,) = json.loads(answer.read_text())["rows"]
    assert (era["entries"], era["last_version"], era["ok"]) == (24, ENTRIES, True)
    # The entry that cannot be read lies in the first of both days: the answer is no, and there is one.
    asked = submit("run", "integrity", "--from", "-4d", "--json", "--out", str(answer))
    assert asked.returncode == 1, asked.stderr
    (era,) = json.loads(answer.read_text())["rows"]
    assert (era["entries"], era["unreadable"]) == (ENTRIES, {"json": 1})
    refused = submit("run", "uptime")
    assert refused.returncode == 2, refused.stderr
    assert "There is no question" in refused.stderr + refused.stdout


def test_commands_fill_and_ask_a_lake_on_a_cluster(
    stream: Stream, environment: dict[str, str], lake: Lake, midnight_ms: int, tmp_path: Path
) -> None:
    """Its executors have nothing of ours but what the command sends them."""
    stream.append(two_days(midnight_ms))
    snapshots = [day_of(midnight_ms - DAY_MS), day_of(midnight_ms)]
    with SparkCluster(tmp_path / "cluster", environment) as cluster:
        there = [
            "--master",
            cluster.url,
            *(word for one in DRIVER_SETTINGS.items() for word in ("--conf", "=".join(one))),
        ]
        with Shell({**environment, **cluster.driver_environment}) as shell:
            ingested = shell.pipeline("ingest", "--once", *there)
            assert (ingested.code, ingested.out) == (0, "")
            asked = shell.pipeline("run", "availability", "--by", "seat", *last_day(midnight_ms), "--json", *there)
            assert asked.code == 0, asked
            answer: dict[str, Any] = json.loads(asked.out)
            made = shell.pipeline("run", "snapshot", "--json", *there)
            assert (made.code, json.loads(made.out)["days"]) == (0, snapshots)
    place = lake.changes.pin().position
    assert place is not None
    assert place.version == ENTRIES
    assert [(row["broker"], row["availability"]) for row in answer["rows"]] == [("b", 1.0)]
    assert (answer["ok"], answer["partial"]) == (True, False)
