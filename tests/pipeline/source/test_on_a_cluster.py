"""The source on a Spark cluster whose executors have only the parts of our package that the session sends them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.source.streams import URL_ENV, Stream
from tests.support.spark_cluster import DRIVER_SETTINGS, SparkCluster

pytestmark = pytest.mark.slow
DRIVER_SECONDS = 240

DRIVER = """
import json, sys
from routebook_pipeline.session import build_session
from routebook_pipeline.source.data_source import register

master, settings, options, checkpoint = sys.argv[1], *map(json.loads, sys.argv[2:4]), sys.argv[4]
spark = build_session(master, settings)
register(spark)
batch = spark.read.format("routebook").options(**options).load()
result = {"partitions": batch.rdd.getNumPartitions(), "batch": batch.count(), "streamed": []}

def keep(frame, number):
    result["streamed"].append(sorted(int(row.entry_id.split("-")[1]) for row in frame.select("entry_id").collect()))

stream = spark.readStream.format("routebook").options(**options).load()
writer = stream.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
query = writer.foreachBatch(keep).start()
query.awaitTermination()
spark.stop()
print("result:" + json.dumps(result))
"""


def test_executors_read_with_the_package_they_were_sent(stream: Stream, store_url: str, tmp_path: Path) -> None:
    stream.fill(1_000)
    with SparkCluster(tmp_path / "cluster", {URL_ENV: store_url}) as cluster:
        options = stream.options(max_entries_per_trigger="600", entries_per_partition="200")
        arguments = [json.dumps(DRIVER_SETTINGS), json.dumps(options), str(tmp_path / "checkpoint")]
        environment = {**os.environ, URL_ENV: store_url, **cluster.driver_environment}
        ended = subprocess.run(
            [sys.executable, "-c", DRIVER, cluster.url, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=DRIVER_SECONDS,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("result:")]
    result = json.loads(line.removeprefix("result:"))
    assert result["partitions"] == 5
    assert result["batch"] == 1_000
    assert result["streamed"] == [list(range(1, 601)), list(range(601, 1_001))]
