"""One Spark session for all tests of the pipeline: it costs ten seconds to start, and about one a job afterwards.

So: many cases, one job. A case is a cluster (or a namespace) of its own in one data frame.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.session import build_session

SPARK_GROUP = "spark"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever needs the session runs in one process (`--dist loadgroup`): a session each would cost more than it
    saves.
    """
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(SPARK_GROUP))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    # The compiler for long runs is left out: nothing here runs long enough to be paid back.
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
def plainly(spark: SparkSession) -> Iterator[SparkSession]:
    """So few rows are answered sooner than code for them is made, or a plan adapted."""
    quicker = {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"}
    usual = {name: str(spark.conf.get(name)) for name in quicker}
    for name, value in quicker.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in usual.items():
        spark.conf.set(name, value)
