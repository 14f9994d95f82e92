"""What an operator has: commands, one after the other or left running, and a store with two days in it."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from routebook_pipeline.history import DAY_MS, HOUR_MS
from routebook_pipeline.source.stream import EntryId
from tests.pipeline.cli.shell import Ended, Shell
from tests.pipeline.process_group import ProcessGroup

SMALL: Final = ("--master", "local[2]", "--conf", "spark.driver.memory=1g", "--conf", "spark.sql.shuffle.partitions=1")
QUICK_START: Final = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LIGHT: Final = (*SMALL, "--conf", QUICK_START)
DAYS: Final = 2
ENTRIES: Final = DAYS * 24

Entry = tuple[EntryId, bytes]


def told(kind: str, **fields: object) -> bytes:
    seat = {"cluster": "c", "broker": "b", "id": 0, "addr": "127.0.0.1:10911"}
    return json.dumps({"v": 1, "kind": kind, **seat, **fields}).encode()


def two_days(midnight_ms: int) -> list[Entry]:
    """One entry an hour up to the last midnight: a broker that registers again and again, and once nobody's JSON."""

    def payload(version: int) -> bytes:
        if version == 1:
            return told("broker-registered", first=True)
        return b"{" if version == 7 else told("broker-changed")

    start_ms = midnight_ms - DAYS * DAY_MS - HOUR_MS
    return [(EntryId(start_ms + version * HOUR_MS, version), payload(version)) for version in range(1, ENTRIES + 1)]


def iso(ms: int) -> str:
    """As a person types it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms // 1000))


def last_day(midnight_ms: int) -> tuple[str, ...]:
    return ("--from", iso(midnight_ms - DAY_MS), "--to", iso(midnight_ms))


class Pipeline:
    """Commands in one process, with a Spark as small as they need."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def __call__(self, *arguments: str) -> Ended:
        return self._shell.pipeline(*arguments, *LIGHT)

    def without_spark(self, *arguments: str) -> Ended:
        return self._shell.pipeline(*arguments)

    def json(self, *arguments: str, code: int = 0) -> Any:
        ended = self(*arguments, "--json")
        assert ended.code == code, ended
        return json.loads(ended.out)


class Running(ProcessGroup):
    """A command that is left running."""

    def __init__(self, environment: Mapping[str, str], says: Path, *arguments: str) -> None:
        super().__init__(["-m", "routebook", "pipeline", *arguments], environment, says)


def lines_of(entries: Sequence[Entry]) -> str:
    return "".join(json.dumps({"id": str(at), "d": d.decode()}) + "\n" for at, d in entries)
