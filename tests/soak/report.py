"""The page and the chart of a long run."""

import platform
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.soak.chart import Chart, Panel
from tests.soak.run import Result
from tests.soak.slopes import CONFIDENCE, Point, Slope, slope_of

WARM_UP_SHARE: Final = 1 / 6
"""Left out of the slopes: caches fill, the bounded streams reach their limit, and Python's memory its usual size."""
PAGE_WIDTH: Final = 100
GROWTH_LIMIT_PERCENT: Final = 5.0
"""A run fails when a measurement surely grows by more than this per hour."""


@dataclass(frozen=True)
class Measurement:
    name: str
    title: str
    digits: int
    smallest: float
    """A change per hour below this is not a growth, however certain: one file, a thousandth of a millisecond."""


MEASUREMENTS: Final = (
    Measurement("memory_mib", "memory of a worker, MiB", 2, 1.0),
    Measurement("open_files", "open files of a worker", 2, 1.0),
    Measurement("other_files", "open files that are no peer's connection", 2, 1.0),
    Measurement("tasks", "asyncio tasks of a worker", 2, 1.0),
    Measurement("waiting_requests", "requests that wait in queues", 3, 0.5),
    Measurement("feed_lag_changes", "changes not applied yet", 3, 0.5),
    Measurement("store_mib", "data in the store, MiB", 3, 0.5),
    Measurement("store_resident_mib", "memory of the store, MiB", 2, 1.0),
    Measurement("store_connections", "connections of the store", 2, 1.0),
    Measurement("lookup_p50_ms", "lookup, median, ms", 3, 0.05),
    Measurement("lookup_p99_ms", "lookup, 99th percentile, ms", 3, 0.5),
)


def grows(measurement: Measurement, slope: Slope) -> bool:
    """Whether even the lower end of the interval is too much."""
    return slope.lowest > max(measurement.smallest, GROWTH_LIMIT_PERCENT / 100 * abs(slope.mean))


def settled(points: Sequence[Point], seconds: float) -> list[Point]:
    return [point for point in points if point[0] >= seconds * WARM_UP_SHARE]


def slopes(result: Result) -> list[tuple[Measurement, str, Slope]]:
    found = []
    for measurement in MEASUREMENTS:
        for (name, line), points in sorted(result.samples.lines.items()):
            if name == measurement.name and (slope := slope_of(settled(points, result.seconds))):
                found.append((measurement, line, slope))
    return found


def growths(result: Result) -> list[str]:
    return [
        f"I8: {measurement.title} ({line}) grows by {slope.per_hour:.2f} ± {slope.half_width:.2f} per hour"
        for measurement, line, slope in slopes(result)
        if grows(measurement, slope)
    ]


def chart(result: Result) -> str:
    panels = []
    for measurement in MEASUREMENTS:
        lines = {line: points for (name, line), points in result.samples.lines.items() if name == measurement.name}
        if lines:
            panels.append(Panel(measurement.title, lines))
    faults: dict[str, list[tuple[float, float]]] = {}
    for kind, began, ended in result.faults:
        faults.setdefault(kind, []).append((began, ended))
    title = f"Long run of {result.seconds / 60:.0f} minutes with {len(result.faults)} faults, seed {result.seed}"
    return Chart(title, panels, faults).svg(result.seconds)


def slope_table(result: Result) -> list[str]:
    rows = ["| measurement | where | mean | change per hour | verdict |", "|---|---|---|---|---|"]
    for measurement, line, slope in slopes(result):
        digits = measurement.digits
        rows.append(
            f"| {measurement.title} | {line} | {slope.mean:.{digits}f} "
            f"| {slope.per_hour:+.{digits}f} ± {slope.half_width:.{digits}f} | {_verdict(measurement, slope)} |"
        )
    return rows


def _verdict(measurement: Measurement, slope: Slope) -> str:
    if slope.is_zero_within_noise:
        return "zero within noise"
    if grows(measurement, slope):
        return "**grows**"
    direction = "rises" if slope.per_hour > 0 else "falls"
    return f"{direction} by {abs(slope.percent_per_hour):.1f} % per hour"


def _item(text: str) -> list[str]:
    return textwrap.wrap(f"- {text}", PAGE_WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def page(result: Result, command: str) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(result.fault_counts.items()))
    lookups = ", ".join(f"{name} {count:,}" for name, count in sorted(result.lookups.items()))
    cpu = ", ".join(f"{name} {percent:.0f} %" for name, percent in sorted(result.cpu_percent.items()))
    failures = [line for failure in result.failures for line in _item(failure)] or ["None."]
    return "\n".join(
        [
            "# Long run",
            "",
            "Does anything grow, slow down or break when Routebook runs for a long time among faults? This page",
            "is written by the command below; `tests/soak` is its code.",
            "",
            "```console",
            f"$ {command}",
            "```",
            "",
            "## What runs",
            "",
            "Three `routebook serve` on one store that keeps its data, all as processes of their own, with a",
            "fault proxy before each worker and between each worker and the store. A fleet of 24 groups with a",
            "slave each changes all the time ([simulate.md](simulate.md)): crashes, deployments, failovers,",
            "silences, flapping, topics created and deleted. Its 60 clients look up their topics. A second,",
            "steady fleet of 8 brokers never stops; ten lookups per second at each worker check that it is in",
            "every answer.",
            "",
            "One random fault at a time, from the seed, 12 to 38 s after the one before. Each lasts at most",
            "15 s: a worker is killed, stopped or suspended; the store is killed and restarted, suspended,",
            "emptied, or loses its scripts; connections to the store or of the peers are reset, stalled or",
            "delayed, at one worker or at all. Workers 1 and 3 keep their process from the start to the end, so",
            "they are measured; worker 2 is the one that is killed and restarted.",
            "",
            "## Result",
            "",
            f"{day}, {platform.machine()}, Python {platform.python_version()}, {result.seconds / 60:.0f} minutes, "
            f"seed {result.seed}.",
            "",
            *_item(f"Faults: {len(result.faults)} ({counts})."),
            *_item(f"Lookups of the steady fleet: {result.lookups.total():,} ({lookups})."),
            *_item(f"Processor time, share of one core: {cpu}."),
            f"- Restarts of worker 2: {result.restarts}; starts that failed before: {result.failed_starts}.",
            "",
            "![Measurements over time, and the faults](images/soak.svg)",
            "",
            f"Slopes over the means of minutes, with {CONFIDENCE:.0%} confidence intervals. The first sixth of the",
            'run is left out, because caches and the bounded streams fill. "Zero within noise" means that the',
            "interval contains 0. The streams of the store (history, heartbeat gaps, refusals) have limits, so",
            "their sizes are shown apart from all other data.",
            "",
            *slope_table(result),
            "",
            "## Violations",
            "",
            "A violation is a known topic answered with code 17, a route without one of its healthy brokers, a",
            "failed lookup at a worker that runs, workers whose digests differ at the end, a process that ended,",
            "a traceback in a log, or a measurement that surely grows by more than",
            f"{GROWTH_LIMIT_PERCENT:.0f} % per hour.",
            "",
            *failures,
            "",
        ]
    )
