"""What do open consoles cost a worker, and how fast is a page with 10,000 topics, or 100,000?

- Lookups (p99, and lookups per CPU second) of a worker without and with 100 open consoles on ten different pages, while
  a registration changes the table every second: in turn in one run, by one compiled process (load/lookups.c).
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

from benchmarks.load.consoles import Consoles
from benchmarks.load.frames import Fleet, Peer, body_of, lookup, registration
from benchmarks.load.generator import Load, Result, build, run
from benchmarks.load.servers import Running, free_port, routebook
from routebook.store.embedded import EmbeddedStore
from tests.support.chromium import CHROMIUM

BROKERS = 100
CONSOLES = 100
LOOKED_UP = "topic-09999"
LOADS = (Load(4, 1), Load(32, 1))
IDLE_PERCENT, PAINT_MS = 0.5, 200
MORE_MS = 0.2
"""By how much 100 consoles may raise the p99 of lookups: less than a round trip in a network."""
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


def measure_lookups(server: Running, http_port: int, topics: list[str], rounds: int, seconds: float) -> None:
    generator = build()
    request = lookup(LOOKED_UP)
    peer = Peer(server.port)
    size = len(body_of(peer.ask(request)))
    peer.close()
    found: dict[tuple[Load, int], list[Result]] = defaultdict(list)
    pages = 0

    def measure(consoles: int) -> None:
        for load in LOADS:
            found[load, consoles].append(
                run(generator, server.port, load, seconds, [request], body_bytes=size, process=server.process)
            )

    with one_change_a_second(server.port, "broker-000", topics):
        for number in range(rounds):
            for consoles in (0, CONSOLES) if number % 2 else (CONSOLES, 0):
                if not consoles:
                    measure(0)
                    continue
                with Consoles(http_port, [PAGES[at % len(PAGES)] for at in range(consoles)]) as opened:
                    measure(consoles)
                pages += opened.pages
    print(f"\nLookups without and with {CONSOLES} consoles; they read {pages / rounds:,.0f} pages a round")
    print("   load  consoles  lookups/s  per CPU s   p50 ms   p99 ms  p99.9 ms")
    for (load, consoles), results in sorted(found.items(), key=lambda item: (str(item[0][0]), item[0][1])):
        median = {
            name: statistics.median(getattr(one, name) for one in results)
            for name in ("per_second", "per_cpu_second", "p50_us", "p99_us", "p999_us")
        }
        print(
            f"{load!s:>7}{consoles:10}{median['per_second']:11,.0f}{median['per_cpu_second']:11,.0f}"
            f"{median['p50_us'] / 1e3:9.2f}{median['p99_us'] / 1e3:9.2f}{median['p999_us'] / 1e3:10.2f}"
        )
    for load in LOADS:
        pairs = zip(found[load, CONSOLES], found[load, 0], strict=True)
        more_ms = statistics.median(one.p99_us - other.p99_us for one, other in pairs) / 1e3
        print(f"  p99 at {load}: {more_ms:+.2f} ms {mark(more_ms <= MORE_MS)}")


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
            measure_lookups(server, http_port, table["broker-000"], rounds, seconds)


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
