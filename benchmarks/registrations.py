"""What does the registration of a large broker cost a worker, and how long do lookups wait meanwhile?

For each checkout one worker runs as a process of its own, on a store of its own, and the benchmark speaks to it on
RocketMQ's port as a broker and a client do. The checkouts take turns in each round, so that other load on the machine
meets all of them alike. In a round a new broker registers (first), sends the same again (unchanged), and then sends its
table with ten changed topics (changed).

- CPU: time of the worker's process and its children, from sending the request until its answer is here. The time of a
  child that ends meanwhile is missing; earlier checkouts replace their child after a body of 70,000 topics.
- wall: the same, by the clock. It depends on what else the machine does.
- stall: a client looks a route up again and again during the registration. Shown is the longest of these lookups in a
  registration, by the clock, and the CPU time that the worker used in the meantime, on which other load has no effect.

All figures are medians of the rounds, in milliseconds. Result: docs/decisions/0045-registrations-decoded-by-msgspec.md

    .venv/bin/python -m benchmarks.registrations [--topics 10000 70000] [--rounds 7] [CHECKOUT ...]

Without a checkout, that is a folder with a .venv of its own, it measures the one it belongs to.
"""

import argparse
import os
import platform
import statistics
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from benchmarks.load.frames import Peer, lookup, registration, unregistration
from benchmarks.load.servers import Running, process_cpu_seconds, routebook

CHANGED_TOPICS = 10
REPEATS = 5
"""Repeats of the unchanged registration, which takes a few milliseconds."""
SETTLE_S = 0.3
"""Pause before each measurement, so that the work of the previous one has ended."""
LOOKUP_PAUSE_S = 0.0005
LOOKED_UP = "topic-that-is-looked-up"

Figures = dict[str, list[float]]


class Prober(threading.Thread):
    """Looks one route up again and again, and keeps the longest wait."""

    def __init__(self, server: Running) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._ended = threading.Event()
        self.wall_ms = 0.0
        self.cpu_ms = 0.0

    def run(self) -> None:
        peer, question = Peer(self._server.port), lookup(LOOKED_UP)
        while not self._ended.is_set():
            wall, cpu = time.perf_counter(), self._server.cpu_seconds()
            peer.ask(question)
            self.cpu_ms = max(self.cpu_ms, (self._server.cpu_seconds() - cpu) * 1e3)
            self.wall_ms = max(self.wall_ms, (time.perf_counter() - wall) * 1e3)
            time.sleep(LOOKUP_PAUSE_S)
        peer.close()

    def end(self) -> None:
        self._ended.set()
        self.join()
        if not self.wall_ms:
            raise SystemExit("The lookups failed.")


def cpu_with_children(process: int) -> float:
    total = process_cpu_seconds(process)
    for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        total += cpu_with_children(int(child))
    return total


def measure_cost(server: Running, peer: Peer, request: bytes, repeats: int = 1) -> tuple[float, float]:
    """Milliseconds for each: CPU of the worker and its children, wall."""
    time.sleep(SETTLE_S)
    cpu, wall = cpu_with_children(server.process), time.perf_counter()
    for _ in range(repeats):
        peer.ask(request)
    wall = time.perf_counter() - wall
    return (cpu_with_children(server.process) - cpu) / repeats * 1e3, wall / repeats * 1e3


def measure_stall(server: Running, peer: Peer, request: bytes) -> tuple[float, float]:
    """Milliseconds: the longest lookup, and the worker's CPU time in the one that used most of it."""
    owner = Peer(server.port)
    owner.ask(registration("broker-of-lookups", "127.0.7.1:10911", [LOOKED_UP, "another-topic"]))
    time.sleep(SETTLE_S)
    prober = Prober(server)
    prober.start()
    time.sleep(0.05)
    peer.ask(request)
    time.sleep(0.05)
    prober.end()
    owner.close()
    return prober.wall_ms, prober.cpu_ms


def measure_round(server: Running, topics: list[str], number: int, figures: Figures) -> None:
    """Two new brokers: what one costs is measured without lookups, and lookups are measured with the other."""
    for kind in ("cost", "stall"):
        broker, address = f"broker-{kind}-{number}", f"127.0.{8 if kind == 'cost' else 9}.{number + 1}:10911"
        first = registration(broker, address, topics)
        changed = registration(broker, address, topics, counter=2, changed=CHANGED_TOPICS)
        peer = Peer(server.port)
        for name, request in (("first", first), ("unchanged", first), ("changed", changed)):
            if kind == "cost":
                found = measure_cost(server, peer, request, REPEATS if name == "unchanged" else 1)
                names = ("CPU", "wall")
            else:
                found = measure_stall(server, peer, request)
                names = ("stall", "stall CPU")
            for what, value in zip(names, found, strict=True):
                figures[f"{name} {what}"].append(value)
        peer.ask(unregistration(broker, address))
        peer.close()


def measure(checkouts: list[Path | None], sizes: list[int], rounds: int) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(routebook(checkout)) for checkout in checkouts]
        print(
            f"{platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; "
            f"Python {platform.python_version()}; median of {rounds} rounds; {time.strftime('%Y-%m-%d')}"
        )
        for size in sizes:
            topics = [f"topic-of-a-large-broker-{number:05d}" for number in range(size)]
            found: dict[str, Figures] = {server.name: defaultdict(list) for server in servers}
            for number in range(rounds + 1):
                for server in servers if number % 2 else reversed(servers):
                    # The first round warms up.
                    measure_round(server, topics, number, found[server.name] if number else defaultdict(list))
            print_table(size, found)
        print(f"load average at the end: {os.getloadavg()[0]:.1f}")


def print_table(size: int, found: dict[str, Figures]) -> None:
    columns = ("CPU", "wall", "stall", "stall CPU")
    print(f"\n{f'{size:,} topics, ms':28}" + "".join(f"{column:>12}" for column in columns))
    for kind in ("first", "changed", "unchanged"):
        for name, figures in found.items():
            values = "".join(f"{statistics.median(figures[f'{kind} {column}']):12.1f}" for column in columns)
            print(f"{kind:12}{name:16}{values}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs="*", metavar="CHECKOUT")
    parser.add_argument("--topics", type=int, nargs="+", default=[10_000, 70_000])
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    measure([path.resolve() for path in arguments.checkouts] or [None], arguments.topics, arguments.rounds)
