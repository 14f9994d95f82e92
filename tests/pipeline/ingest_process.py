"""`ingest` in a process group of its own that a test can kill, and a producer that appends entries meanwhile."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from routebook_pipeline.source.stream import EntryId
from tests.pipeline.lake.streams import payload
from tests.pipeline.process_group import ProcessGroup
from tests.pipeline.source.streams import URL_ENV, Stream

STARTED = "started"

_PROGRAM = """
import json, sys, threading
from routebook_pipeline.lake.ingest import ingest
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.session import build_session

root, namespace, once, settings, options = json.loads(sys.argv[1])
spark = build_session("local[2]", settings)
print("started", flush=True)
print_event = lambda event: print(f"{event.stream} {event.committed is not None}", flush=True)
lake = Lake(root, namespace)
ingest(spark, lake, once=once, trigger_s=0.2, options=options, on_event=print_event, stop=threading.Event())
spark.stop()
"""
_SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Ingest(ProcessGroup):
    def __init__(
        self,
        root: Path,
        namespace: str,
        url: str,
        log: Path,
        *,
        once: bool,
        options: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        arguments = json.dumps([str(root), namespace, once, _SETTINGS, dict(options or {})])
        super().__init__(["-c", _PROGRAM, arguments], {URL_ENV: url, **(environment or {})}, log)

    @property
    def commits(self) -> int:
        return self.output.count("changes True")


class Producer:
    """Appends entries until it is stopped, with ids as the service makes them: the store's clock, never falling, and
    consecutive versions.
    """

    ENTRIES = 5
    PAUSE_SECONDS = 0.02

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.last = EntryId(0, 0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self.PAUSE_SECONDS):
            seconds, microseconds = self._stream.client.execute_command("TIME")
            ms = max(int(seconds) * 1000 + int(microseconds) // 1000, self.last.ms)
            first = self.last.version + 1
            versions = range(first, first + self.ENTRIES)
            self.last = self._stream.append((EntryId(ms, one), payload(one)) for one in versions)[-1]
