"""The answers about a simulated fleet agree with what the fleet did and with what the service answered.

ROUTEBOOK_TEST_CHURN_SECONDS sets how long the fleet churns.
"""

import json
import os
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.history import ERA_SHIFT, History, Instant, Window
from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms.instants import Instants
from routebook_pipeline.transforms.routes import route_json, routes
from tests.pipeline.churning_fleet import TIMEOUT_MS, Churned, churn
from tests.pipeline.oracle.history_rows import ReadRows, Row, in_order
from tests.pipeline.questions import QUESTIONS, answers, compare
from tests.support.simulated import lines_of

pytestmark = pytest.mark.slow

CHURN_SECONDS = float(os.environ.get("ROUTEBOOK_TEST_CHURN_SECONDS", "600"))
PAIRS = 1000
INSTANTS_A_JOB = 100
NOTICED_MS = 10_000
"""A crash closes the connection and is noticed after the grace period of half a second, or later on a slow machine."""


class Fleet:
    """What was ingested, and the simulation's journal of what happened."""

    def __init__(self, spark: SparkSession, churned: Churned) -> None:
        self.churned = churned
        self.journal = lines_of(churned.journal)
        changes, pulses = churned.lake.changes.pin().read(spark), churned.lake.pulses.pin().read(spark)
        self.history = History(changes.cache(), pulses.cache())
        self.rows: list[Row] = in_order([row.asDict() for row in self.history.changes.collect()])
        self.read = ReadRows(self.rows, [row.asDict() for row in self.history.pulses.collect()])
        (self.hole,) = [row for row in self.rows if row["code"] == Kind.HOLE]
        before = [row for row in self.rows if row["ord"] < self.hole["ord"]]
        self.whole = Window(self.rows[0]["ms"], self.rows[-1]["ms"] + 1)
        self.read_in_time = Window(self.whole.start_ms, before[-1]["ms"])

    def removals(self, *causes: str) -> list[Row]:
        return [
            row
            for row in self.rows
            if row["code"] == Kind.BROKER_REMOVED and row["cause"] in causes and row["ms"] < self.read_in_time.end_ms
        ]

    def of_broker(self, event: str, row: Row) -> list[dict[str, Any]]:
        """The journal's lines about this address in this group."""
        return [
            line
            for line in self.journal
            if line["event"] == event and (line["broker"], line["address"]) == (row["broker"], row["addr"])
        ]


@pytest.fixture(scope="module")
def fleet(small_spark: SparkSession, store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    namespace = f"t-churn-{random.randrange(10**9)}"
    churned = churn(small_spark, store_url, namespace, tmp_path_factory.mktemp("churned"), CHURN_SECONDS)
    return Fleet(small_spark, churned)


def test_only_the_trimmed_entries_are_missing(fleet: Fleet) -> None:
    window = fleet.whole
    (rows,) = answers(QUESTIONS["integrity"], fleet.history, [window])
    (era,) = rows
    assert era["holes"] == [{"from_version": fleet.churned.read + 1, "to_version": fleet.churned.trimmed}]
    assert era["entries"] + era["missing"] == era["last_version"] - era["first_version"] + 1
    assert (era["duplicates"], era["forks"], era["unreadable"], era["late"]) == (0, 0, {}, 0)
    assert era["first_version"] == 1
    assert era["baselines"] >= 1


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_answer_equals_the_oracles(name: str, fleet: Fleet) -> None:
    question = QUESTIONS[name]
    windows = [fleet.whole, fleet.read_in_time]
    for window, rows in zip(windows, answers(question, fleet.history, windows), strict=True):
        assert not compare(question, rows, question.of_oracle(fleet.read, window)), window


def test_routes_equal_the_services_answers(fleet: Fleet) -> None:
    """Topics and versions that depend on trimmed entries are left out: their routes are unknown."""
    lines = [line for line in lines_of(fleet.churned.answers) if "stale_s" not in line and line["version"]]
    (history,) = {line["history"] for line in lines}
    assert history
    end = next(
        row["version"] for row in fleet.rows if row["code"] == Kind.BASELINE_END and row["ord"] > fleet.hole["ord"]
    )
    sure = [line for line in lines if not fleet.hole["from_version"] <= line["version"] < end]
    by_pair = {(line["topic"], line["version"]): line for line in sure}
    pairs = random.Random(1).sample(sorted(by_pair), min(PAIRS, len(by_pair)))
    different = []
    for (topic, version), rows in _routes(fleet.history, pairs).items():
        assert all(row["certain"] for row in rows), (topic, version)
        found, expected = route_json(rows), by_pair[topic, version]["route"]
        if _sorted(found) != _sorted(expected):
            different.append((topic, version, found, expected))
    print(
        f"{len(pairs)} pairs of {len(by_pair)}, {sum(by_pair[pair]['status'] == 404 for pair in pairs)} without route"
    )
    assert not different, (len(different), different[:3])
    assert len(pairs) == PAIRS or CHURN_SECONDS < 120


def _routes(history: History, pairs: Sequence[tuple[str, int]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    versions = sorted({version for _, version in pairs})
    found: dict[tuple[str, int], list[dict[str, Any]]] = {pair: [] for pair in pairs}
    era = history.changes.first()
    assert era is not None
    for first in range(0, len(versions), INSTANTS_A_JOB):
        some = versions[first : first + INSTANTS_A_JOB]
        instants = Instants([Instant(ord=era["era"] * ERA_SHIFT + version) for version in some])
        for row in routes(history, instants).collect():
            pair = (row["topic"], some[row["at"]])
            if pair in found:
                found[pair].append(row.asDict(recursive=True))
    return found


def _sorted(route: dict[str, Any] | None) -> dict[str, Any] | None:
    if route is None:
        return None
    names = ("brokerDatas", "queueDatas")
    return {name: sorted(route[name], key=lambda data: str(data["brokerName"])) for name in names}


def test_failovers_agree_with_the_journal(fleet: Fleet) -> None:
    window = fleet.read_in_time
    (rows,) = answers(QUESTIONS["failovers"], fleet.history, [window])
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: int(row["version"])):
        found[row["broker"]].append((row["from_address"], row["to_address"]))
    sure, possible = _masters(fleet.journal, window.end_ms, "ms"), _masters(fleet.journal, window.end_ms, "sent_ms")
    assert any(sure.values())
    for broker in possible:
        changes = found[broker]
        assert changes == possible[broker][: len(changes)], broker
        assert len(sure[broker]) <= len(changes), broker
    assert found.keys() <= possible.keys()


def _masters(journal: Sequence[dict[str, Any]], end_ms: int, when: str) -> dict[str, list[tuple[str, str]]]:
    """Group -> changes of the master's address, from the registrations that were accepted before the end.

    `when`: with `ms`, the time of the answer, they certainly were before the end; with `sent_ms` they may have been.
    """
    last: dict[str, str] = {}
    changes: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for line in journal:
        if line["event"] != "registered" or line["id"] != 0:
            continue
        accepted = [answer for answer in line["servers"].values() if answer.get("code") == 0]
        at = line["sent_ms"] if when == "sent_ms" else min((answer["ms"] for answer in accepted), default=end_ms)
        if not accepted or at >= end_ms:
            continue
        former = last.get(line["broker"])
        if former not in (None, line["address"]):
            changes[line["broker"]].append((str(former), line["address"]))
        last[line["broker"]] = line["address"]
    return changes


def test_every_unplanned_removal_has_a_cause_in_the_journal(fleet: Fleet) -> None:
    lost, expired = fleet.removals("connection-lost"), fleet.removals("expired")
    assert lost
    assert expired or CHURN_SECONDS < 120
    for row in lost:
        crashes = [line for line in fleet.of_broker("stopped", row) if line["how"] == "crash"]
        assert any(-1000 <= row["lost_ms"] - line["ms"] <= NOTICED_MS for line in crashes), row
    for row in expired:
        assert any(line["ms"] <= row["ms"] for line in fleet.of_broker("silence-began", row)), row
        last = [line for line in fleet.of_broker("registered", row) if line["sent_ms"] < row["ms"]][-1]
        answers_ms = [answer["ms"] for answer in last["servers"].values()]
        assert any(last["sent_ms"] - 5 <= row["last_heartbeat_ms"] <= ms + 5 for ms in answers_ms), row
        assert row["ms"] - row["last_heartbeat_ms"] >= TIMEOUT_MS, row


def test_every_long_absence_in_the_journal_was_recorded(fleet: Fleet) -> None:
    """Silence and unregistering end a seat. (A crash that is over within the grace period need not.)"""
    end = fleet.read_in_time.end_ms
    unregistered = [
        line
        for line in fleet.journal
        if line["event"] == "unregistered" and all(answer["ms"] < end - 1000 for answer in line["servers"].values())
    ]
    removed = {(row["broker"], row["addr"], row["ms"]) for row in fleet.removals("unregistered")}
    assert unregistered
    for line in unregistered:
        assert any(
            (broker, addr) == (line["broker"], line["address"]) and -5 <= ms - line["sent_ms"] <= NOTICED_MS
            for broker, addr, ms in removed
        ), line
    assert len(removed) >= len(unregistered)
    for line in fleet.journal:
        if line["event"] == "silence-ended" and line["ms"] < end:
            began = fleet.of_broker("silence-began", {**line, "addr": line["address"]})
            start = max(other["ms"] for other in began if other["ms"] < line["ms"])
            assert any(
                (row["broker"], row["addr"]) == (line["broker"], line["address"]) and start <= row["ms"] <= line["ms"]
                for row in fleet.removals("expired")
            ), line


def test_every_heartbeat_is_counted_in_the_gaps(fleet: Fleet) -> None:
    """Every accepted registration but the first one of an incarnation ends a gap. A stop may cut off one more."""
    (rows,) = answers(QUESTIONS["heartbeat_gaps by cluster"], fleet.history, [Window(0, fleet.whole.end_ms + 10**6)])
    accepted = sum(
        answer.get("code") == 0
        for line in fleet.journal
        if line["event"] == "registered"
        for answer in line["servers"].values()
    )
    incarnations = sum(line["event"] in ("started", "silence-ended") for line in fleet.journal)
    number = sum(row["number"] for row in rows)
    print(f"{number} gaps, {accepted} accepted registrations, {incarnations} incarnations")
    assert accepted - 2 * incarnations <= number <= accepted


def test_the_run_has_enough_entries(fleet: Fleet, tmp_path: Path) -> None:
    """Also prints the figures of the run."""
    entries = sum(row["row"] == 0 for row in fleet.rows)
    kinds: dict[str, int] = defaultdict(int)
    for line in fleet.journal:
        kinds[line["event"]] += 1
    print(json.dumps({"seconds": CHURN_SECONDS, "entries": entries, "journal": kinds}))
    assert entries > CHURN_SECONDS
