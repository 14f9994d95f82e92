"""What do open consoles cost a worker, and how fast is a page with 10,000 topics, or 100,000?

- Lookups (p99, and lookups per CPU second) of a worker while 100 consoles show ten different pages, and a registration
  changes the table every second. The load generator (load/lookups.c), the consoles and the worker share the processors,
  so there is a control: the same consoles at another worker of the same store. Measured twice without consoles, too:
  the difference of these two is the noise. All four in turn, in each round.
- CPU of a worker with one idle console, less that of a worker without one on the same store at the same time.
- The first page after a start, and each page when it was read before: until all of its HTML has arrived, and, with
  Chromium, until the browser has painted it.

    .venv/bin/python -m benchmarks.console [--quick] [--rounds 5] [--seconds 3] [--only lookups] [--topics 100000]

The load generator needs a C compiler. Result: docs/benchmarks/console.md
"""

import argparse
import os
import platform
import statistics
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import permutations

from benchmarks.load.consoles import Consoles
from benchmarks.load.frames import Fleet, Peer, body_of, lookup, registration
from benchmarks.load.generator import Load, Result, build, run
from benchmarks.load.servers import Running, routebook
from routebook.store.embedded import EmbeddedStore
from tests.support.chromium import CHROMIUM
from tests.support.ports import free_port

BROKERS = 100
CONSOLES = 100
LOOKED_UP = "topic-09999"
LOADS = (Load(4, 1), Load(32, 1))
IDLE_PERCENT, PAINT_MS = 0.5, 200
CALM, CALM_AGAIN, ELSEWHERE, HERE = "none", "none, again", "elsewhere", "here"
PAGES = (
    "/console/",
    "/console/topics",
    "/console/topics?q=0099",
    "/console/topic?name=topic-00001",
    "/console/brokers",
    "/console/broker?name=broker-001",
    "/console/clusters",
    "/console/outages",
    "/console/changes",
    "/console/limits",
)

FIRST_PAINT = """() => new Promise(resolve => new PerformanceObserver(list => {
    for (const entry of list.getEntriesByName("first-contentful-paint")) resolve(entry.startTime);
}).observe({type: "paint", buffered: true}))"""


def topics_of(topics: int) -> dict[str, list[str]]:
    """Broker -> its topics. Each topic is on two brokers."""
    share = topics * 2 // BROKERS
    return {
        f"broker-{number:03d}": [f"topic-{number // 2 * share + at:05d}" for at in range(share)]
        for number in range(BROKERS)
    }


@contextmanager
def one_change_a_second(port: int, broker: str, topics: list[str]) -> Iterator[None]:
    """One broker registers with other queue numbers of one topic."""
    stopping = threading.Event()
    peer = Peer(port)

    def change() -> None:
        counter = 1
        while not stopping.wait(1):
            counter += 1
            peer.ask(registration(broker, "127.0.0.1:10911", topics, counter=counter, changed=counter % 2))

    thread = threading.Thread(target=change)
    thread.start()
    yield
    stopping.set()
    thread.join()
    peer.close()


def measure_lookups(
    server: Running, http_ports: dict[str, int], topics: list[str], rounds: int, seconds: float
) -> None:
    """`http_ports` has those of the measured worker (HERE) and of the other one."""
    generator = build()
    request = lookup(LOOKED_UP)
    peer = Peer(server.port)
    size = len(body_of(peer.ask(request)))
    peer.close()
    found: dict[tuple[Load, str], list[Result]] = defaultdict(list)
    pages: dict[str, list[int]] = defaultdict(list)
    paths = [PAGES[at % len(PAGES)] for at in range(CONSOLES)]
    orders = list(permutations((CALM, CALM_AGAIN, ELSEWHERE, HERE)))[::5]

    def measure_each(condition: str) -> None:
        for load in LOADS:
            found[load, condition].append(
                run(generator, server.port, load, seconds, [request], body_bytes=size, process=server.process)
            )

    with one_change_a_second(server.port, "broker-000", topics):
        for number in range(rounds):
            for condition in orders[number % len(orders)]:
                if condition not in http_ports:
                    measure_each(condition)
                    continue
                with Consoles(http_ports[condition], paths) as opened:
                    measure_each(condition)
                pages[condition].append(opened.pages)
    read = ", ".join(f"{statistics.mean(numbers):,.0f} {condition}" for condition, numbers in sorted(pages.items()))
    print(f"\nLookups while {CONSOLES} consoles are open at the other worker and at this one")
    print(f"  pages that the consoles read in a round: {read}")
    print(f"{'load':>7}{'consoles':>13}{'lookups/s':>11}{'per CPU s':>11}{'p50 ms':>9}{'p99 ms':>9}{'p99.9 ms':>10}")
    for load in LOADS:
        for condition in (CALM, CALM_AGAIN, ELSEWHERE, HERE):
            print_lookups(load, condition, found[load, condition])
    print("\nDifference of the p99 within a round, ms: median, and from least to most")
    for load in LOADS:
        calm = p99_differences(found[load, CALM_AGAIN], found[load, CALM])
        here = p99_differences(found[load, HERE], found[load, CALM])
        own = p99_differences(found[load, HERE], found[load, ELSEWHERE])
        noise = max(map(abs, calm))
        print_differences(load, "no consoles, twice: the noise", calm)
        print_differences(load, "consoles here, less no consoles", here, is_met=statistics.median(here) <= noise)
        print_differences(load, "consoles here, less elsewhere", own, is_met=statistics.median(own) <= noise)


def print_lookups(load: Load, condition: str, results: list[Result]) -> None:
    median = {
        name: statistics.median(getattr(one, name) for one in results)
        for name in ("per_second", "per_cpu_second", "p50_us", "p99_us", "p999_us")
    }
    print(
        f"{load!s:>7}{condition:>13}{median['per_second']:11,.0f}{median['per_cpu_second']:11,.0f}"
        f"{median['p50_us'] / 1e3:9.3f}{median['p99_us'] / 1e3:9.3f}{median['p999_us'] / 1e3:10.3f}"
    )


def p99_differences(results: list[Result], others: list[Result]) -> list[float]:
    return [(one.p99_us - other.p99_us) / 1e3 for one, other in zip(results, others, strict=True)]


def print_differences(load: Load, name: str, differences: list[float], *, is_met: bool = True) -> None:
    middle, least, most = statistics.median(differences), min(differences), max(differences)
    print(f"{load!s:>7}  {name:36}{middle:+8.3f}   {least:+.3f} to {most:+.3f} {mark(is_met)}")


def measure_idle(store: EmbeddedStore, rounds: int, seconds: float) -> None:
    """The two workers do the same for the fleet: nothing."""
    differences = []
    with ExitStack() as stack:
        port = free_port()
        with_console = stack.enter_context(routebook(http_port=port, shared=store))
        without = stack.enter_context(routebook(shared=store))
        time.sleep(2)
        with Consoles(port, ["/console/"]):
            time.sleep(2)
            for _ in range(rounds):
                before = [server.cpu_seconds() for server in (with_console, without)]
                time.sleep(seconds)
                used = [server.cpu_seconds() - one for server, one in zip((with_console, without), before, strict=True)]
                differences.append((used[0] - used[1]) / seconds * 100)
    cost = statistics.median(differences)
    print(
        f"\nAn idle console on the overview costs its worker {cost:.2f} % of a processor "
        f"({min(differences):.2f} to {max(differences):.2f}; {rounds} times {seconds:g} s) {mark(cost < IDLE_PERCENT)}"
    )


def measure_pages(store: EmbeddedStore, rounds: int, other_port: int) -> None:
    first: list[float] = []
    warm: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        with started(store) as port:
            first.append(time_page(port, PAGES[0]))
            for path in PAGES:
                time_page(port, path)
                warm[path].append(min(time_page(port, path) for _ in range(3)))
    print(f"\nUntil the HTML has arrived, ms (median of {rounds} starts)")
    print(f"  {'first request after the start':40}{statistics.median(first):8.1f}{max(first):8.1f} at most")
    for path, times in warm.items():
        print(f"  {path:40}{statistics.median(times):8.1f}")
    if CHROMIUM is None:
        print("Chromium is missing, so the first paint was not measured.")
        return
    measure_paint(store, rounds, other_port)


@contextmanager
def started(store: EmbeddedStore) -> Iterator[int]:
    """A worker that has just begun to answer, and its HTTP port. The sockets listen before that."""
    port = free_port()
    with routebook(http_port=port, shared=store) as server:
        peer = Peer(server.port)
        peer.ask(lookup(LOOKED_UP))
        peer.close()
        yield port


def time_page(port: int, path: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        answer.read()
    return (time.perf_counter() - began) * 1e3


def measure_paint(store: EmbeddedStore, rounds: int, other_port: int) -> None:
    """In a tab that shows the console of another worker: a new tab first starts a process of the browser, which takes
    longer than everything else.
    """
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 only with a browser

    painted: dict[str, list[float]] = defaultdict(list)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for _ in range(rounds):
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{other_port}/console/")
            with started(store) as port:
                for name, path in [("first request after the start", PAGES[0]), *((path, path) for path in PAGES)]:
                    page.goto(f"http://127.0.0.1:{port}{path}")
                    painted[name].append(page.evaluate(FIRST_PAINT))
            page.close()
        browser.close()
    print(f"\nFirst paint in an open tab of Chromium, ms (median of {rounds} starts)")
    for name, times in painted.items():
        print(f"  {name:40}{statistics.median(times):8.0f}{max(times):8.0f} at most {mark(max(times) <= PAINT_MS)}")


def mark(is_met: bool) -> str:
    return "" if is_met else "!"


def measure(arguments: argparse.Namespace) -> None:
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    seconds = arguments.seconds or (1.0 if arguments.quick else 3.0)
    http_port = free_port()
    with ExitStack() as stack:
        store = stack.enter_context(EmbeddedStore(None))
        server = stack.enter_context(routebook(http_port=http_port, shared=store))
        table = topics_of(arguments.topics)
        fleet = Fleet(server.port, table)
        stack.callback(fleet.close)
        fleet.register()
        print(
            f"{platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; "
            f"Python {platform.python_version()}; {rounds} rounds of {seconds:g} s; {time.strftime('%Y-%m-%d')}; "
            f"{arguments.topics:,} topics; ! marks a target that is missed"
        )
        if "pages" in arguments.only:
            measure_pages(store, rounds, http_port)
        if "idle" in arguments.only:
            measure_idle(store, rounds, 2 * seconds)
        if "lookups" in arguments.only:
            other_port = free_port()
            stack.enter_context(routebook(http_port=other_port, shared=store))
            http_ports = {HERE: http_port, ELSEWHERE: other_port}
            measure_lookups(server, http_ports, table["broker-000"], rounds, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of each measurement")
    parser.add_argument("--topics", type=int, default=10_000)
    parts = ("pages", "idle", "lookups")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="the parts to measure")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
