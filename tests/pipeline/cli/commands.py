"""Commands, run one after the other or in the background, and a history of two days to run them on."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from routebook_pipeline.history import DAY_MS, HOUR_MS
from routebook_pipeline.source.stream import EntryId
from tests.pipeline.cli.shell import Result, Shell
from tests.pipeline.process_group import ProcessGroup

SMALL: Final = ("--master", "local[2]", "--conf", "spark.driver.memory=1g", "--conf", "spark.sql.shuffle.partitions=1")
QUICK_START: Final = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LIGHT: Final = (*SMALL, "--conf", QUICK_START)
DAYS: Final = 2
ENTRIES: Final = DAYS * 24
FIRST_OF_LAST_DAY: Final = (DAYS - 1) * 24 + 1
"""The version of the entry exactly at the start of `last_day`."""

Entry = tuple[EntryId, bytes]


def seat_entry(kind: str, **fields: object) -> bytes:
    seat = {"cluster": "c", "broker": "b", "id": 0, "addr": "127.0.0.1:10911"}
    return json.dumps({"v": 1, "kind": kind, **seat, **fields}).encode()


def two_days(midnight_ms: int) -> list[Entry]:
    """One entry an hour up to the last midnight: a broker that registers repeatedly, with a topic from the start
    of the last day, and one entry of invalid JSON.
    """

    def payload(version: int) -> bytes:
        if version == 1:
            return seat_entry("broker-registered", first=True)
        if version == FIRST_OF_LAST_DAY:
            return seat_entry("broker-changed", queues=[{"t": "orders", "r": 4, "w": 4, "p": 6, "f": 0}])
        return b"{" if version == 7 else seat_entry("broker-changed")

    start_ms = midnight_ms - DAYS * DAY_MS - HOUR_MS
    return [(EntryId(start_ms + version * HOUR_MS, version), payload(version)) for version in range(1, ENTRIES + 1)]


def iso(ms: int) -> str:
    """A time as a user types it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms // 1000))


def last_day(midnight_ms: int) -> tuple[str, ...]:
    return ("--from", iso(midnight_ms - DAY_MS), "--to", iso(midnight_ms))


class Pipeline:
    """Runs commands in one process, with a small Spark."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def __call__(self, *arguments: str) -> Result:
        return self._shell.pipeline(*arguments, *LIGHT)

    def without_spark(self, *arguments: str) -> Result:
        return self._shell.pipeline(*arguments)

    def json(self, *arguments: str, code: int = 0) -> Any:
        result = self(*arguments, "--json")
        assert result.code == code, result
        return json.loads(result.out)


class BackgroundCommand(ProcessGroup):
    """A command that runs in the background."""

    def __init__(self, environment: Mapping[str, str], output: Path, *arguments: str) -> None:
        super().__init__(["-m", "routebook", "pipeline", *arguments], environment, output)


def export_file(entries: Sequence[Entry]) -> str:
    return "".join(json.dumps({"id": str(at), "d": d.decode()}) + "\n" for at, d in entries)
