"""How fast does one worker answer route lookups, compared with Apache's name server 5.5.0, with a server that does
nothing, and with an earlier checkout? And what does an unchanged registration cost?

Each server is its own process: one Routebook worker with default settings, mqnamesrv (heap of 1 GB, warmed up), and a
bare uvloop echo of the answer's bytes (load/echo.py). One compiled process (load/lookups.c) sends lookups to each of
them in turn and checks every answer. Each ratio is taken within one round; the median of the rounds is shown.

    .venv/bin/python -m benchmarks.lookups [--quick] [--before CHECKOUT] [--without-apache]

Apache's jars are fetched by Maven, once for each machine, or come from a folder (--namesrv-lib); without them, Apache
is omitted. CHECKOUT is a folder with another state of this repository and its own .venv. The load generator needs a C
compiler.

Result: docs/benchmarks/lookups.md
"""

import argparse
import os
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.frames import Fleet, Peer, body_of, lookup, registration
from benchmarks.load.generator import Load, Result, build, run
from benchmarks.load.servers import Running, apache, echo, find_apache, routebook

SIZES = (2, 16, 100)
"""Brokers in the route."""
LOADS = (Load(32, 1), Load(256, 1), Load(32, 8))
TOPICS_A_SIZE = 20
"""Looked up in turn."""
LARGE_TABLE_TOPICS = 10_000

PER_CPU_SECOND = {2: 3.0, 16: 3.0, 100: 5.0}
PER_SECOND = {1: {2: 1.7, 16: 1.7, 100: 3.0}, 8: {2: 2.0, 16: 2.5, 100: 3.5}}
"""By what is in flight on a connection, then by brokers."""
P99 = 0.6
OF_ECHO = 0.6
REGISTRATION = 0.3


@dataclass(frozen=True)
class Case:
    brokers: int
    load: Load


def topics_of_size(brokers: int) -> list[str]:
    return [f"orders-of-{brokers}-brokers-{number:02d}" for number in range(TOPICS_A_SIZE)]


def topics_of() -> dict[str, list[str]]:
    """Broker -> its topics: those of all routes that contain it."""
    return {
        f"broker-{number:03d}": [topic for size in SIZES if number < size for topic in topics_of_size(size)]
        for number in range(max(SIZES))
    }


class Bench:
    def __init__(self, names: dict[str, Running], seconds: float) -> None:
        self._generator = build()
        self._servers = names
        self._seconds = seconds
        self._fleets = [Fleet(server.port, topics_of()) for server in names.values()]
        self.register()
        self._answers = {brokers: self._answer(brokers) for brokers in SIZES}

    def register(self) -> None:
        for fleet in self._fleets:
            fleet.register()

    def close(self) -> None:
        for fleet in self._fleets:
            fleet.close()

    def _answer(self, brokers: int) -> bytes:
        """The answers of all servers must be equally long; otherwise they do not do the same work."""
        answers = []
        for server in self._servers.values():
            peer = Peer(server.port)
            answers += [peer.ask(lookup(topic)) for topic in topics_of_size(brokers)]
            peer.close()
        if len({len(body_of(answer)) for answer in answers}) != 1:
            raise SystemExit(f"The answers of {brokers} brokers differ: {min(answers)!r} {max(answers)!r}")
        return answers[0]

    def start_echoes(self, stack: ExitStack) -> dict[int, Running]:
        return {brokers: stack.enter_context(echo(answer)) for brokers, answer in self._answers.items()}

    def load(self, server: Running, case: Case, seconds: float | None = None) -> Result:
        return run(
            self._generator,
            server.port,
            case.load,
            seconds or self._seconds,
            [lookup(topic) for topic in topics_of_size(case.brokers)],
            body_bytes=len(body_of(self._answers[case.brokers])),
            process=server.process,
            paired=server.name != "echo",
        )


def measure_lookups(bench: Bench, servers: dict[str, Running], echoes: dict[int, Running], rounds: int) -> None:
    cases = [Case(brokers, load) for brokers in SIZES for load in LOADS]
    results: dict[Case, dict[str, list[Result]]] = {case: defaultdict(list) for case in cases}
    for number in range(rounds):
        for case in cases:
            bench.register()
            targets = [*servers.values(), echoes[case.brokers]]
            for server in targets[number % len(targets) :] + targets[: number % len(targets)]:
                results[case][server.name].append(bench.load(server, case))
    print_results(results)
    print_ratios(results)
    for name in servers.keys() - {"Routebook", "Apache"}:
        print_ratios_to_checkout(results, name)


def print_results(results: dict[Case, dict[str, list[Result]]]) -> None:
    print("\nbrokers    load  server        answers/s   per CPU s   p50 ms   p99 ms  p99.9 ms   load's own CPU")
    for case, by_server in results.items():
        for name, found in by_server.items():
            print(
                f"{case.brokers:7}  {case.load!s:>6}  {name:10}"
                f"{median(found, lambda one: one.per_second):13,.0f}"
                f"{median(found, lambda one: one.per_cpu_second):12,.0f}"
                f"{median(found, lambda one: one.p50_us) / 1000:9.2f}"
                f"{median(found, lambda one: one.p99_us) / 1000:9.2f}"
                f"{median(found, lambda one: one.p999_us) / 1000:10.2f}"
                f"{median(found, lambda one: one.own_cpu_seconds / one.seconds):16.0%}"
            )


def print_ratios(results: dict[Case, dict[str, list[Result]]]) -> None:
    print("\nRoutebook's ratios, with their targets; ! marks a target that is missed")
    print("brokers    load     per second    per CPU second           p99    of the echo, per CPU second")
    for case, by_server in results.items():
        own, bare = by_server["Routebook"], by_server["echo"]
        cells = [" " * 15] * 3
        if rival := by_server.get("Apache"):
            cells = [
                at_least(ratio(own, rival, lambda one: one.per_second), PER_SECOND[case.load.in_flight][case.brokers]),
                at_least(ratio(own, rival, lambda one: one.per_cpu_second), PER_CPU_SECOND[case.brokers]),
                at_most(ratio(own, rival, lambda one: one.p99_us), P99),
            ]
        of_echo = ratio(own, bare, lambda one: one.per_cpu_second)
        cells.append(at_least(of_echo, OF_ECHO) if case.load.in_flight == 1 else f"{of_echo:5.2f}")
        print(f"{case.brokers:7}  {case.load!s:>6}" + "".join(f"{cell:>16}" for cell in cells))


def print_ratios_to_checkout(results: dict[Case, dict[str, list[Result]]], name: str) -> None:
    print(f"\nThis checkout : {name}")
    print("brokers    load     per second    per CPU second     p99")
    for case, by_server in results.items():
        own, other = by_server["Routebook"], by_server[name]
        per_second = ratio(own, other, lambda one: one.per_second)
        per_cpu_second = ratio(own, other, lambda one: one.per_cpu_second)
        p99 = ratio(own, other, lambda one: one.p99_us)
        print(f"{case.brokers:7}  {case.load!s:>6}{per_second:15.3f}{per_cpu_second:18.3f}{p99:8.3f}")


def median(results: Iterable[Result], figure: Callable[[Result], float]) -> float:
    return statistics.median(map(figure, results))


def ratio(own: list[Result], others: list[Result], figure: Callable[[Result], float]) -> float:
    """The median of the ratios of measurements taken one after the other."""
    return statistics.median(figure(one) / figure(other) for one, other in zip(own, others, strict=True))


def at_least(found: float, target: float) -> str:
    return f"{found:5.2f} >= {target:.1f}{' ' if found >= target else '!'}"


def at_most(found: float, target: float) -> str:
    return f"{found:5.2f} <= {target:.1f}{' ' if found <= target else '!'}"


def measure_registration(servers: dict[str, Running], rounds: int, repeats: int) -> None:
    """One broker repeats its registration, as brokers do every 30 s."""
    topics = [f"topic-of-a-large-table-{number:05d}" for number in range(LARGE_TABLE_TOPICS)]
    request = registration("broker-large", "127.0.9.1:10911", topics)
    peers = {name: Peer(server.port) for name, server in servers.items()}
    taken: dict[str, list[float]] = defaultdict(list)
    with_store: dict[str, list[float]] = defaultdict(list)
    for peer in peers.values():
        for _ in range(repeats):
            peer.ask(request)
    for _ in range(rounds):
        for name, server in servers.items():
            before, before_with_store = server.cpu_seconds(), server.with_store_cpu_seconds()
            for _ in range(repeats):
                peers[name].ask(request)
            taken[name].append((server.cpu_seconds() - before) / repeats * 1e3)
            with_store[name].append((server.with_store_cpu_seconds() - before_with_store) / repeats * 1e3)
    for peer in peers.values():
        peer.close()
    print(f"\nAn unchanged registration, {LARGE_TABLE_TOPICS:,} topics in {len(request):,} bytes: CPU of the server")
    for name, values in taken.items():
        store = f", with its store {statistics.median(with_store[name]):.2f} ms" if name == "Routebook" else ""
        print(f"  {name:10} {statistics.median(values):7.2f} ms{store}")
    if {"Apache", "Routebook"} <= taken.keys():
        pairs = zip(with_store["Routebook"], taken["Apache"], strict=True)
        share = statistics.median(own / other for own, other in pairs)
        print(f"  Routebook's ratio to Apache, its store included: {at_most(share, REGISTRATION)}")


def warm_up(bench: Bench, server: Running, seconds: float) -> None:
    """A JVM compiles hot code, so each kind of measured work runs first."""
    cases = [Case(brokers, load) for brokers in SIZES for load in LOADS]
    for case in cases:
        bench.load(server, case, seconds / len(cases))


def measure(arguments: argparse.Namespace) -> None:
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    seconds = arguments.seconds or (1.0 if arguments.quick else 2.0)
    with ExitStack() as stack:
        servers = {"Routebook": stack.enter_context(routebook())}
        if arguments.before:
            before = stack.enter_context(routebook(arguments.before.resolve()))
            servers[before.name] = before
        if arguments.without_apache:
            print("Apache's name server is omitted.")
        elif isinstance(lib := find_apache(arguments.namesrv_lib), Path):
            servers["Apache"] = stack.enter_context(apache(lib))
        else:
            print(f"Apache's name server is omitted: {lib}.")
        bench = Bench(servers, seconds)
        stack.callback(bench.close)
        echoes = bench.start_echoes(stack)
        if "Apache" in servers:
            warm_up(bench, servers["Apache"], 5 if arguments.quick else 20)
        print(
            f"{platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; "
            f"Python {platform.python_version()}; {rounds} rounds of {seconds:g} s; {time.strftime('%Y-%m-%d')}"
        )
        measure_lookups(bench, servers, echoes, rounds)
        measure_registration(servers, rounds, 10 if arguments.quick else 30)
        print("\nPeak memory: " + ", ".join(f"{name} {one.peak_mib():.0f} MiB" for name, one in servers.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--namesrv-lib", type=Path, metavar="FOLDER", help="the jars of Apache's name server 5.5.0")
    parser.add_argument("--without-apache", action="store_true", help="omit Apache's name server")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="another checkout to compare with")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of each measurement")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
