"""The lake and the Spark session that a command works with."""

import hashlib
import logging
import os
import re
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from routebook_pipeline.answers.computation import history_extent
from routebook_pipeline.answers.coverage import HistoryExtent
from routebook_pipeline.cli.options import CommonOptions, refuse_flags
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.java import find_java_home, java_version
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.local_files import cache_folder
from routebook_pipeline.session import JAVA_OPTIONS, QUICK_START, build_session, is_submitted

kept_session: SparkSession | None = None
"""The session of `routebook pipeline serve`, which all its commands share."""
SMALL_HISTORY_ROWS: Final = 200_000
MASTER_TIMEOUT_S: Final = 4.0
"""For all addresses of a master. A name with an IPv4 and an IPv6 address takes twice as long."""
KEPT_LINES: Final = 200
REPORTED_LINES: Final = 3


def open_lake(common: CommonOptions, progress: Progress) -> tuple[Lake, HistoryExtent]:
    """Called before Spark starts, so that a command that will be refused is refused at once."""
    progress.show("opening the lake")
    lake = Lake(common.lake, common.namespace)
    extent = history_extent(lake, common.store_variable)
    progress.clear()
    return lake, extent


def quick_start(common: CommonOptions, lake: Lake) -> dict[str, str]:
    """Settings for one question about a small history on this machine; `--conf` takes precedence."""
    if not common.master.startswith("local") or is_submitted() or kept_session is not None:
        return {}
    if lake.changes.pin().files.rows > SMALL_HISTORY_ROWS or JAVA_OPTIONS in common.conf:
        return {}
    return {JAVA_OPTIONS: f"{QUICK_START} {class_archive(find_java_home())}"}


ARCHIVE_MAGIC: Final = 0xF00BABA8.to_bytes(4, sys.byteorder)
"""Java writes the beginning of an archive last, so a file that begins with it is complete."""
ARCHIVING_S: Final = 600.0
"""How long Java may take to write an archive. It does so after the command has ended."""
OTHER_ARCHIVES_KEPT_S: Final = 30 * 86_400.0
"""How long the archives of other Javas and Sparks are kept, from when they were written."""


def class_archive(home: Path) -> str:
    """The option of Java for an archive of its loaded classes, which saves half of the start of Spark.

    The first command has Java write the archive when it ends, and later commands use it. Java itself compares the
    archive with its class path, and ignores one that does not fit. The name stands for this Java and this Spark.
    """
    jars = Path(pyspark.__file__).parent / "jars"
    identity = f"{home.resolve()} {_modified_ns(home / 'release')} {jars} {_modified_ns(jars)} {QUICK_START}"
    folder, name = cache_folder(), f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"
    archive = folder / name
    with suppress(OSError):
        for file in folder.glob("classes-*.jsa*"):
            if file.name.startswith(f"{name}.") and _is_complete(file):
                file.replace(archive)
            elif file != archive and time.time() - file.stat().st_mtime > _kept_s(file):
                file.unlink()
        if _is_complete(archive):
            return f'"-XX:SharedArchiveFile={archive}"'
        if not list(folder.glob(f"{name}.*")):
            return f'"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}"'
    return ""


def _kept_s(file: Path) -> float:
    return OTHER_ARCHIVES_KEPT_S if file.suffix == ".jsa" else ARCHIVING_S


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _is_complete(archive: Path) -> bool:
    try:
        with archive.open("rb") as file:
            return file.read(len(ARCHIVE_MAGIC)) == ARCHIVE_MAGIC
    except OSError:
        return False


@contextmanager
def spark_session(
    common: CommonOptions, progress: Progress, defaults: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """`defaults`: settings instead of ours, unless `--conf` has them."""
    if not common.debug:
        # PySpark logs stack traces of the errors that it raises too.
        logging.disable(logging.CRITICAL)
    try:
        if kept_session is not None:
            yield kept_session
            return
        session = start_session(common.master, {**(defaults or {}), **common.conf}, progress, debug=common.debug)
        try:
            yield session
        except BaseException:
            # If Java has ended, stopping fails too. The first error is the one to report.
            with suppress(Exception):
                session.stop()
            raise
        progress.show("stopping Spark")
        session.stop()
        progress.clear()
    finally:
        logging.disable(logging.NOTSET)


def start_session(master: str, conf: dict[str, str], progress: Progress, *, debug: bool) -> SparkSession:
    if not is_submitted():
        return _start_with_java(master, conf, progress, debug=debug)
    refuse_flags({"master": "--master"}, "under spark-submit it is an option of spark-submit, before the program.")
    progress.show("starting Spark")
    return build_session(master, conf)


def _start_with_java(master: str, conf: dict[str, str], progress: Progress, *, debug: bool) -> SparkSession:
    check_master_answers(master)
    progress.show("looking for Java")
    home = find_java_home()
    progress.show(f"starting Spark (Java {java_version(home)}, {master})")
    output = JavaOutput(shown=debug)
    try:
        return build_session(master, conf, java_output_fd=output.descriptor)
    except PySparkException as error:
        raise UnreachableError(
            f"Spark did not start on {master} with the Java in {home}. Its output: {output.last() or error}"
        ) from error
    finally:
        output.close_descriptor()


_MASTER_ADDRESS: Final = re.compile(r"(?:spark://|k8s://(?:https?://)?)(.+)")
_DEFAULT_PORTS: Final = {"spark": 7077, "k8s": 443}


def check_master_answers(master: str) -> None:
    """Spark itself tries for minutes, and then says nothing of an address. A standalone cluster may have several."""
    found = _MASTER_ADDRESS.fullmatch(master)
    if found is None:
        return
    problems = []
    addresses = found[1].split(",")
    for address in addresses:
        host, _, port = address.partition("/")[0].rpartition(":")
        number = int(port) if port.isdigit() and host else _DEFAULT_PORTS[master.partition(":")[0]]
        try:
            with socket.create_connection(
                (host.strip("[]") or port, number), timeout=MASTER_TIMEOUT_S / len(addresses)
            ):
                return
        except OSError as error:
            problems.append(f"{address}: {error.strerror or error}")
    raise UnreachableError(
        f"The Spark master {master} cannot be reached ({'; '.join(problems)}). Check the address given with --master."
    )


class JavaOutput:
    """Collects what Java prints: kept away from answers and terminals, but available if Java does not start."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        read_end, self.descriptor = os.pipe()
        # Reads as long as the JVM runs: a full pipe would block it.
        self._reader = threading.Thread(target=self._read, args=(read_end,), name="java-output", daemon=True)
        self._reader.start()

    def close_descriptor(self) -> None:
        """Once the JVM has a copy. With ours closed, the reader ends when the JVM does."""
        os.close(self.descriptor)

    def last(self) -> str:
        """The last lines that are not warnings or parts of a stack trace."""
        relevant = [line for line in self._lines if line and not line.startswith(("WARNING:", "\tat "))]
        return " / ".join(relevant[-REPORTED_LINES:])

    def _read(self, read_end: int) -> None:
        with os.fdopen(read_end, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._lines.append(line.rstrip())
                if self._shown:
                    sys.stderr.write(line)
