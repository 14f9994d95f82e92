"""One Spark session for all tests of the pipeline: starting it takes ten seconds, and each job about one second.

Therefore many cases share a job. Every case is a cluster (or namespace) of its own in one data frame.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.session import build_session

SPARK_GROUP = "spark"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs all tests that need the session in one process (`--dist loadgroup`), since a second session costs more time
    than it saves.
    """
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(SPARK_GROUP))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    # Without Java's optimizing compiler, which does not pay off in runs as short as these.
    quick_start = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}"
    session = build_session(
        "local[2]",
        {
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "1",
            "spark.driver.extraJavaOptions": quick_start,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
        name="routebook-tests",
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def small_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The session without code generation and adaptive plans, which cost more time than they save for a few rows."""
    quicker = {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"}
    usual = {name: str(spark.conf.get(name)) for name in quicker}
    for name, value in quicker.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in usual.items():
        spark.conf.set(name, value)
