"""The lake and the Spark session that a command works with."""

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from routebook_pipeline.answers.computation import history_extent
from routebook_pipeline.answers.coverage import HistoryExtent
from routebook_pipeline.cli.options import Site, refuse
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.java import find_java_home, java_version
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.session import build_session, is_submitted


def open_lake(site: Site, progress: Progress) -> tuple[Lake, HistoryExtent]:
    """Before Spark is started: what is refused, is refused at once."""
    progress.doing("opening the lake")
    lake = Lake(site.lake, site.namespace)
    extent = history_extent(lake, site.store_variable)
    progress.clear()
    return lake, extent


KEPT_LINES: Final = 200
TOLD_LINES: Final = 3


class JavaMessages:
    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._kept: deque[str] = deque(maxlen=KEPT_LINES)
        out, self.descriptor = os.pipe()
        # Must go on as long as the JVM: a full pipe would stop it.
        self._reader = threading.Thread(target=self._read, args=(out,), name="java-messages", daemon=True)
        self._reader.start()

    def started(self) -> None:
        """The JVM has its own copy; ours is closed so that the reader ends when the JVM does."""
        os.close(self.descriptor)

    def last(self) -> str:
        """What it said last, for an error."""
        telling = [line for line in self._kept if line and not line.startswith(("WARNING:", "\tat "))]
        return " / ".join(telling[-TOLD_LINES:])

    def _read(self, out: int) -> None:
        with os.fdopen(out, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._kept.append(line.rstrip())
                if self._shown:
                    sys.stderr.write(line)


@contextmanager
def spark_for(site: Site, progress: Progress) -> Iterator[SparkSession]:
    if not site.debug:
        # Python's half of Spark logs whole stack traces beside the error that it raises.
        logging.disable(logging.CRITICAL)
    try:
        session = _started(site, progress)
        try:
            yield session
        except BaseException:
            # Java may be the one that is gone; why is told by what is on its way up.
            with suppress(Exception):
                session.stop()
            raise
        progress.doing("stopping Spark")
        session.stop()
        progress.clear()
    finally:
        logging.disable(logging.NOTSET)


def _started(site: Site, progress: Progress) -> SparkSession:
    if not is_submitted():
        return _own_spark(site, progress)
    refuse({"master": "--master"}, "under spark-submit it stands among its own options, before the program.")
    progress.doing("starting Spark")
    return build_session(site.master, site.conf)


def _own_spark(site: Site, progress: Progress) -> SparkSession:
    progress.doing("looking for Java")
    home = find_java_home()
    progress.doing(f"starting Spark (Java {java_version(home)}, {site.master})")
    messages = JavaMessages(shown=site.debug)
    try:
        return build_session(site.master, site.conf, java_output_fd=messages.descriptor)
    except PySparkException as error:
        raise UnreachableError(
            f"Spark did not start on {site.master} with the Java of {home}. It said: {messages.last() or error}"
        ) from error
    finally:
        messages.started()
