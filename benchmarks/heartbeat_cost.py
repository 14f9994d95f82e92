"""What does counting heartbeat gaps cost a heartbeat? The same calls with and without it, interleaved in one run.

Three measurements, each a ratio with : without, of the best of all rounds (other load only ever adds):

- store: its own time (`INFO commandstats`, microseconds per call) for a touch and for a heartbeat, compared with the
  earlier scripts: without the gap, and with one call more;
- worker: the time of this process for the whole call through the registry's code, many in flight, compared with the
  same without `HeartbeatGaps.record`;
- counting alone: `HeartbeatGaps.record`, in nanoseconds.

    python benchmarks/heartbeat_cost.py            # takes some seconds
"""

import argparse
import asyncio
import hashlib
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from routebook.model.broker import DataVersion, QueueData, Registration, Seat
from routebook.model.names import Caller
from routebook.registry.heartbeat_gaps import HeartbeatGaps
from routebook.settings import LiveSettings, load
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace
from routebook.store.registration import QueueDifference, heartbeat_broker, register_broker, touch_broker
from routebook.store.scripts import Script, ScriptSet
from routebook.store.workers import open_namespace

CALLER = Caller("benchmark", "127.0.0.1:1")
DIGEST = "d" * 32
BROKERS = 200
IN_FLIGHT = 64
TARGET = 1.10
"""Heartbeats are the cheapest path: counting gaps may cost at most a tenth of it."""
STORE_TARGET_US = 1000
"""How long an unchanged registration may block the store."""

WITH_GAP = (
    ("local before = redis.call('ZSCORE', heartbeats, instance_name)\n", ""),
    (
        "local deadline_now, server_now, version = deadline_clock(by)",
        "local deadline_now, server_now = deadline_clock(by)\nlocal version = current_version()",
    ),
    ("return before and math.max(server_now - tonumber(before), 0) or -1", "return -1"),
)


@dataclass
class Way:
    """One of the two compared variants."""

    name: str
    namespace: Namespace
    pulse: HeartbeatGaps | None


def without_gap(scripts: ScriptSet) -> ScriptSet:
    """The scripts without the gap."""
    made = {}
    for name in scripts.names:
        source = scripts[name].source
        for there, instead in WITH_GAP:
            source = source.replace(there, instead)
        made[name] = Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
    assert made["touch_broker"].sha1 != scripts["touch_broker"].sha1
    assert made["heartbeat_broker"].source.count("ZSCORE") == 0
    return ScriptSet(made)


def broker(number: int) -> Registration:
    return Registration(
        cluster="bench",
        broker=f"broker-{number}",
        broker_id=0,
        address=f"127.0.2.{number}:10911",
        data_version=DataVersion(0, 1, 1),
        topics={f"topic-{n}": QueueData(8, 8) for n in range(20)},
    )


async def register_all(namespace: Namespace, brokers: list[Registration]) -> None:
    history = (await open_namespace(namespace)).history
    for said in brokers:
        difference = QueueDifference(new=said.topics)
        await register_broker(
            namespace,
            said,
            difference,
            caller=CALLER,
            timeout_ms=120_000,
            digest=DIGEST,
            base=(history, 0),
            replaces_known=True,
        )


Sign = Callable[[Way, Registration], Awaitable[None]]


async def touch(way: Way, said: Registration) -> None:
    reply = await touch_broker(way.namespace, said, caller=CALLER, digest=DIGEST)
    if way.pulse:
        way.pulse.record(said.seat, reply.gap_ms)


async def heartbeat(way: Way, said: Registration) -> None:
    reply = await heartbeat_broker(way.namespace, said.cluster, "", 0, caller=CALLER, address=said.address)
    if way.pulse:
        way.pulse.record(said.seat, reply.gap_ms)


async def store_us(namespace: Namespace) -> float:
    """Microseconds per call of EVALSHA since the last measurement."""
    text = (await namespace.client.call("INFO", "commandstats")).decode()
    line = next(line for line in text.splitlines() if line.startswith("cmdstat_evalsha:"))
    fields: dict[str, Any] = dict(part.split("=") for part in line.partition(":")[2].split(","))
    return float(fields["usec"]) / float(fields["calls"])


async def run(way: Way, sign: Sign, brokers: list[Registration], calls: int) -> tuple[float, float]:
    """Microseconds per call: of the store's script, and of this process."""

    async def one_of_many(start: int) -> None:
        for n in range(start, calls, IN_FLIGHT):
            await sign(way, brokers[n % len(brokers)])

    await way.namespace.client.call("CONFIG", "RESETSTAT")
    began = time.process_time()
    await asyncio.gather(*(one_of_many(start) for start in range(IN_FLIGHT)))
    spent = time.process_time() - began
    return await store_us(way.namespace), spent / calls * 1e6


async def measure(rounds: int, calls: int) -> None:
    brokers = [broker(n) for n in range(BROKERS)]
    with EmbeddedStore(None) as store:
        client = StoreClient(StoreUrl.parse(store.url), slot_key="rb:{bench}:meta", timeout_ms=30_000)
        await client.open()
        scripts = ScriptSet.load()
        namespace = Namespace(client, Keys("bench"), scripts)
        plain = Namespace(client, Keys("bench"), without_gap(scripts))
        await register_all(namespace, brokers)
        live = LiveSettings(load({"redis_url": store.url}))
        ways = [Way("without", plain, None), Way("with", namespace, HeartbeatGaps(namespace, live, "benchmark"))]
        print(f"{rounds} rounds of {calls:,} calls, {IN_FLIGHT} in flight, {BROKERS} brokers; µs a call, best round")
        print(f"{'':12}{'':10}{'without':>10}{'with':>10}{'ratio':>8}{'target':>8}")
        for name, sign in (("touch", touch), ("heartbeat", heartbeat)):
            found: dict[str, list[tuple[float, float]]] = {way.name: [] for way in ways}
            for n in range(rounds + 1):
                for way in ways if n % 2 else reversed(ways):
                    spent = await run(way, sign, brokers, calls)
                    if n:  # the first one warms up
                        found[way.name].append(spent)
            tell(name, found)
        tell_counting(HeartbeatGaps(namespace, live, "benchmark"))
        await client.close()


def tell(name: str, found: dict[str, list[tuple[float, float]]]) -> None:
    for at, who in enumerate(("store", "worker")):
        without, with_ = (min(spent[at] for spent in found[way]) for way in ("without", "with"))
        figures = f"{without:>10.2f}{with_:>10.2f}{with_ / without:>8.3f}"
        print(f"{name:12}{who:10}{figures}{'≤ ' + format(TARGET, '.2f'):>8}")
    usual = statistics.median(store for store, _ in found["with"])
    print(f"{name:12}{'median':10}{'':10}{usual:>10.2f}{'':8}{'≤ ' + str(STORE_TARGET_US):>8}")


def tell_counting(pulse: HeartbeatGaps) -> None:
    began = time.perf_counter()
    for n in range(200_000):
        pulse.record(Seat("bench", "broker", n & 127), 30_000 + (n & 1023))
    print(f"{'counting':12}{'worker':10}{'':10}{(time.perf_counter() - began) / 200_000 * 1e6:>10.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=2_500)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.rounds, arguments.calls))
