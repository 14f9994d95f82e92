"""Runs the faults of `rows.py` against real processes and writes `docs/reliability.md` (`make chaos`).

    make chaos                               all rows
    make chaos ARGS="--row 12 --seed 7"      one row again, with the same random choices
    make chaos ARGS="--list"                 the rows and their tests

Only a run of all rows writes the page, after each row; what it has not run yet is marked as such, so the tables never
mix two runs. The output of each row's tests, and the recordings of those that failed, are kept in the folder `.chaos`.
A row that takes longer than its limit is ended and has failed; the limits of all rows fit into 45 minutes.
"""

import argparse
import fcntl
import os
import platform
import random
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.architecture.sources import ROOT
from tests.faults.laboratory import RECORDINGS_VARIABLE
from tests.faults.page import PAGE, Outcome, write_page
from tests.faults.rows import ROWS, Row
from tests.support.figures import FILE_VARIABLE, SEED_VARIABLE, read_figures
from tests.support.servers import find_servers

LOGS: Final = ROOT / ".chaos"
TOTAL_S: Final = 45 * 60
SIDE_BY_SIDE: Final = 2
END_S: Final = 20
MAX_QUIET_LOAD: Final = 0.3
"""Load average for each core, before a run, above which other work disturbs it."""


def planned_s(rows: Sequence[Row]) -> float:
    """How long the rows take at most: those that may run side by side, then the others."""
    together = [row.limit_s for row in rows if not row.alone]
    alone = sum(row.limit_s for row in rows if row.alone)
    return alone + max(sum(together) / SIDE_BY_SIDE, max(together, default=0))


@dataclass
class Run:
    """One execution of some rows."""

    rows: Sequence[Row]
    seed: int
    pytest_arguments: Sequence[str] = ()
    patience: int = 1
    """The limits of the rows are multiplied by it."""
    page: Path | None = None
    """Written after each row, so that a run that is interrupted leaves what it has seen."""
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def execute(self) -> None:
        """Rows that may run beside others first, two at a time; then the others."""
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            list(pool.map(self._run_row, [row for row in self.rows if not row.alone]))
        for row in self.rows:
            if row.alone:
                self._run_row(row)

    def _run_row(self, row: Row) -> None:
        began = time.monotonic()
        figures, report, log = (LOGS / f"row-{row.number}.{kind}" for kind in ("figures", "xml", "log"))
        for path in (figures, report):
            path.unlink(missing_ok=True)
        environment = {
            **os.environ,
            FILE_VARIABLE: str(figures),
            SEED_VARIABLE: str(self.seed),
            RECORDINGS_VARIABLE: str(LOGS),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-s", "-p", "no:cacheprovider", f"--junitxml={report}"]
        limit_s, is_ended = row.limit_s * self.patience, False
        with log.open("wb") as output:
            tests = subprocess.Popen(
                [*command, *self.pytest_arguments, *row.nodes],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                tests.wait(limit_s)
            except subprocess.TimeoutExpired:
                is_ended = True
                _end(tests)
                report.unlink(missing_ok=True)
                output.write(f"\nended after {limit_s} s\n".encode())
        passed, failed, skipped = _counts(report)
        seconds = time.monotonic() - began
        outcome = Outcome(row, read_figures(figures), passed, failed, skipped, seconds, self.seed, is_ended=is_ended)
        with self._lock:
            self.outcomes[row.number] = outcome
            self._show(outcome, log)
            self._write_page()

    def _write_page(self) -> None:
        if not self.page:
            return
        minutes = (time.monotonic() - self.began) / 60
        outcomes = [self.outcomes.get(row.number) or Outcome(row, (), 0, 0, (), 0, self.seed) for row in self.rows]
        about = f"{datetime.now(UTC):%Y-%m-%d}: {len(self.outcomes)} of {len(self.rows)} rows in {minutes:.0f} minutes"
        write_page(self.page, outcomes, f"{about}, seed {self.seed}, {self._load()}; {machine()}")

    def _load(self) -> str:
        """Times measured on a machine with other work are upper bounds, and the page says so."""
        cores = os.cpu_count() or 1
        if self.load_before <= MAX_QUIET_LOAD * cores:
            return f"on a machine without other work (load average {self.load_before:.1f} before)"
        return f"on a machine that other work kept busy (load average {self.load_before:.1f} before)"

    def _show(self, outcome: Outcome, log: Path) -> None:
        elapsed = int(time.monotonic() - self.began)
        print(
            f"[{elapsed // 60:2}:{elapsed % 60:02}] {len(self.outcomes):2}/{len(self.rows)}  row {outcome.row.number:2}"
            f"  {outcome.verdict:7}  {outcome.seconds:5.0f} s  {outcome.row.fault[:80]}",
            flush=True,
        )
        for text in outcome.seen:
            print(f"{'':31}{text}")
        if outcome.verdict != "held":
            print(f"{'':31}see {log.relative_to(ROOT)}")


def _end(tests: "subprocess.Popen[bytes]") -> None:
    """Interrupted, so that the tests end the workers and stores that they have started."""
    tests.send_signal(signal.SIGINT)
    try:
        tests.wait(END_S)
    except subprocess.TimeoutExpired:
        os.killpg(tests.pid, signal.SIGKILL)
        tests.wait()


def _counts(report: Path) -> tuple[int, int, list[str]]:
    """Tests that passed, tests that failed, and the reasons of those that were skipped. A run that ended early counts
    as failed.
    """
    if not report.exists():
        return 0, 1, []
    cases = list(ET.parse(report).getroot().iter("testcase"))
    skipped = [found.get("message") or "skipped" for case in cases for found in case.findall("skipped")]
    failed = sum(1 for case in cases if case.findall("failure") or case.findall("error"))
    return len(cases) - failed - len(skipped), failed or int(not cases), skipped


def machine() -> str:
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {system}; {', '.join(map(str, find_servers()))}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--row", type=int, action="append", choices=[row.number for row in ROWS], metavar="N")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--patience", type=int, default=1, help="multiply the limits of the rows, on a busy machine")
    parser.add_argument("--list", action="store_true", help="show the rows and their tests, and end")
    options, pytest_arguments = parser.parse_known_args()
    rows = [row for row in ROWS if not options.row or row.number in options.row]
    if options.list:
        for row in rows:
            print(f"{row.number:2}  {row.fault}", *(f"      {node}" for node in row.nodes), sep="\n")
        return 0
    LOGS.mkdir(exist_ok=True)
    lock = (LOGS / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        parser.error("another run uses this checkout; both would write the same files")
    minutes = planned_s(rows) * options.patience / 60
    print(f"{len(rows)} rows, at most {minutes:.0f} minutes, seed {options.seed}; {machine()}", flush=True)
    page = PAGE if len(rows) == len(ROWS) else None
    run = Run(rows, options.seed, pytest_arguments, options.patience, page)
    run.execute()
    held = sum(outcome.verdict == "held" for outcome in run.outcomes.values())
    print(f"{held} of {len(rows)} rows held; seed {options.seed}")
    return 1 if any(outcome.verdict == "failed" for outcome in run.outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
