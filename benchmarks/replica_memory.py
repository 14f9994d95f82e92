"""How much memory does the replica take, and how long does filling it block?

    python -m benchmarks.replica_memory [BROKERS TOPICS]...

Every topic is on every broker, the worst case for the view by topic. Each size runs in its own process.

Result, 2026-11-18, two shared cores, Python 3.11.7:

    1000 brokers x 100 topics: 100000 entries
      RSS 48 MiB, 48 before
      a broker applied in 8.4 ms at most, 3.09 us an entry
      a route of 208945 bytes made in 8246 us
      52 bytes an entry, all in
    100 brokers x 10000 topics: 1000000 entries
      RSS 72 MiB, 48 before
      a broker applied in 46.4 ms at most, 3.21 us an entry
      a route of 20845 bytes made in 607 us
      32 bytes an entry, all in

Sizes do not depend on other load, times do: four other test runs shared the two cores. On a quiet machine, a broker
with 10,000 topics was applied in 13 to 15 ms, and a route of 100 brokers was built in 360 us.
"""

import gc
import multiprocessing
import os
import sys
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

from routebook.model.broker import BrokerGroup, QueueData
from routebook.protocol.answer_bodies import Dialect, encode_route
from routebook.replica.routes import build_route
from routebook.replica.table import Table
from routebook.store.reads import GroupImage

SHAPES = ((1000, 100), (100, 10_000))


def resident_bytes() -> int:
    """Of this process, now: the peak would count what was only in passing."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def image_of(broker: int, topics: int) -> GroupImage:
    """As it comes from the store: every string an object of its own, equal values shared."""
    name = f"broker-{broker:04}"
    values = (QueueData(8, 8, 6), QueueData(8, 8, 4))
    queues = {f"topic-of-some-length-{topic:05}": values[topic % 2] for topic in range(topics)}
    group = BrokerGroup(name, f"cluster-{broker % 8}", addresses={0: f"10.0.{broker}.1:10911"})
    return GroupImage(group, frozenset({group.cluster}), dict(queues), all_queues=True)


def fill(brokers: int, topics: int) -> tuple[Table, list[float]]:
    table = Table()
    blocked: list[float] = []
    for broker in range(brokers):
        image = image_of(broker, topics)
        started = time.perf_counter()
        table.apply_group(f"broker-{broker:04}", image)
        blocked.append(time.perf_counter() - started)
    return table, blocked


def measure_time(brokers: int, topics: int) -> None:
    before = resident_bytes()
    table, blocked = fill(brokers, topics)
    gc.collect()
    entries = table.entry_count
    print(f"{brokers} brokers x {topics} topics: {entries} entries")
    print(f"  RSS {resident_bytes() / 2**20:.0f} MiB, {before / 2**20:.0f} before")
    each = sum(blocked) / entries
    print(f"  a broker applied in {1000 * max(blocked):.1f} ms at most, {1e6 * each:.2f} us an entry")
    image = image_of(0, topics)
    started = time.perf_counter()
    table.apply_group("broker-0000", image)
    print(f"  the same broker once more in {1000 * (time.perf_counter() - started):.1f} ms")
    started = time.perf_counter()
    route = build_route(table, "topic-of-some-length-00007", support_acting_master=True, order_conf_enabled=True)
    assert route
    body = encode_route(route, Dialect.STANDARD)
    print(f"  a route of {len(body)} bytes made in {1e6 * (time.perf_counter() - started):.0f} us")


def measure_memory(brokers: int, topics: int) -> None:
    """Apart from the time, which counting every allocation multiplies."""
    tracemalloc.start()
    table, _ = fill(brokers, topics)
    gc.collect()
    print(f"  {tracemalloc.get_traced_memory()[0] / table.entry_count:.0f} bytes an entry, all in")


def main(arguments: Sequence[str]) -> None:
    numbers = [int(one) for one in arguments]
    shapes = tuple(zip(numbers[::2], numbers[1::2], strict=True)) or SHAPES
    spawn = multiprocessing.get_context("spawn")
    for brokers, topics in shapes:
        for measure in (measure_time, measure_memory):
            process = spawn.Process(target=measure, args=(brokers, topics))
            process.start()
            process.join()


if __name__ == "__main__":
    main(sys.argv[1:])
