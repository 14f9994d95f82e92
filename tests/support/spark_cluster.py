"""Spark's standalone cluster from the installed package: a master and a worker as processes on loopback.

The executors' Python has the libraries of this Python but not our package, as on machines that were set up for Spark
alone. Code of ours can run there only if Spark was given it.
"""

import os
import re
import signal
import stat
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from routebook_pipeline.java import find_java_home

SPARK_HOME = Path(pyspark.__file__).parent
PIPELINE = Path(__file__).parents[2] / "pipeline"
DRIVER_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}
"""Settings of a driver on the same machine."""
START_SECONDS = 60.0
STOP_SECONDS = 20.0

# `-S` leaves out the module `site`. The folder of packages is then on the path, but .pth files in it, which name a
# checkout, are not read.
_PYTHON = """#!/bin/sh
PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{packages}" exec "{python}" -S "$@"
"""


class SparkCluster:
    """`environment`: further variables of the executors, such as the store's address, as an operator would set them."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._stack = ExitStack()
        kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SPARK_HOME"}}
        java = {"JAVA_HOME": str(find_java_home()), "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
        self._environment = kept | java | dict(environment)
        self.python = folder / "python-for-executors"
        self.url = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.python.write_text(_PYTHON.format(packages=sysconfig.get_path("purelib"), python=sys.executable))
        self.python.chmod(self.python.stat().st_mode | stat.S_IXUSR)
        with ExitStack() as stack:
            self._stack = stack
            self.url = self._start("master.Master", r"Starting Spark master at (spark://\S+)")
            arguments = ["--cores", "2", "--memory", "1g", "--work-dir", str(self._folder / "work"), self.url]
            self._start("worker.Worker", r"Successfully registered with master (\S+)", *arguments)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def driver_environment(self) -> dict[str, str]:
        """The driver needs our package: Spark plans streams in a Python process that is not given files of the job."""
        return {"PYTHONPATH": str(PIPELINE), "PYSPARK_PYTHON": str(self.python)}

    def _start(self, role: str, ready: str, *arguments: str) -> str:
        """Waits for a log line that matches `ready`, and returns its first group."""
        log = self._folder / f"{role}.log"
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", "--host", "127.0.0.1"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--port", "0", "--webui-port", "0", *arguments],
                env=self._environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._stack.callback(_end_group, process)

        deadline = time.monotonic() + START_SECONDS
        while (found := re.search(ready, log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"{role} is not ready: {log.read_text()}"
            time.sleep(0.05)
        return found[1]


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and the executors, which a worker starts in its own process group."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
