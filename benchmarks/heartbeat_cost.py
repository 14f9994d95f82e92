"""What does counting heartbeat gaps cost a heartbeat? The same calls with and without it, interleaved in one run.

Three measurements, each a ratio with : without, of the best of all rounds (other load only ever adds):

- store: its own time (`INFO commandstats`, microseconds per call) for a touch and for a heartbeat, compared with the
  earlier scripts: without the gap, and with one call more;
- worker: the time of this process for the whole call through the registry's code, many in flight, compared with the
  same without `HeartbeatGaps.record`;
- counting alone: `HeartbeatGaps.record`, in nanoseconds.

    python -m benchmarks.heartbeat_cost            # takes some seconds
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
from routebook.replica.load import in_steps
from routebook.settings import LiveSettings, load
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, Script, ScriptSet
from routebook.store.registration import QueueDifference, heartbeat_broker, register_broker, touch_broker
from routebook.store.workers import open_namespace

CALLER = Caller("benchmark", "127.0.0.1:1")
DIGEST = "d" * 32
BROKERS = 200
IN_FLIGHT = 64
TARGET = 1.10
"""Heartbeats are the cheapest path: counting gaps may cost at most a tenth of it."""
STORE_TARGET_US = 1000
"""How long an unchanged registration may block the store."""

GAP_CODE = (
    ("local before = redis.call('ZSCORE', heartbeats, instance_name)\n", ""),
    (
        "local deadline_now, server_now, version = deadline_clock(by)",
        "local deadline_now, server_now = deadline_clock(by)\nlocal version = current_version()",
    ),
    ("return before and math.max(server_now - tonumber(before), 0) or -1", "return -1"),
)


@dataclass
class Variant:
    """One of the two compared variants."""

    name: str
    namespace: Namespace
    gaps: HeartbeatGaps | None


def without_gaps(scripts: ScriptSet) -> ScriptSet:
    """The scripts without the gap."""
    changed = {}
    for name in scripts.names:
        source = scripts[name].source
        for with_gap, instead in GAP_CODE:
            source = source.replace(with_gap, instead)
        changed[name] = Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
    assert changed["touch_broker"].sha1 != scripts["touch_broker"].sha1
    assert changed["heartbeat_broker"].source.count("ZSCORE") == 0
    return ScriptSet(changed)


def registration(number: int) -> Registration:
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
    for broker in brokers:
        difference = QueueDifference(new=broker.topics)
        await register_broker(
            namespace,
            broker,
            difference,
            caller=CALLER,
            timeout_ms=120_000,
            digest=DIGEST,
            base=(history, 0),
            replaces_known=True,
            run_steps=in_steps,
        )


Call = Callable[[Variant, Registration], Awaitable[None]]


async def touch(variant: Variant, broker: Registration) -> None:
    reply = await touch_broker(variant.namespace, broker, caller=CALLER, digest=DIGEST)
    if variant.gaps:
        variant.gaps.record(broker.seat, reply.gap_ms)


async def heartbeat(variant: Variant, broker: Registration) -> None:
    reply = await heartbeat_broker(variant.namespace, broker.cluster, "", 0, caller=CALLER, address=broker.address)
    if variant.gaps:
        variant.gaps.record(broker.seat, reply.gap_ms)


async def store_us(namespace: Namespace) -> float:
    """Microseconds per call of EVALSHA since the last measurement."""
    text = (await namespace.client.call("INFO", "commandstats")).decode()
    line = next(line for line in text.splitlines() if line.startswith("cmdstat_evalsha:"))
    fields: dict[str, Any] = dict(part.split("=") for part in line.partition(":")[2].split(","))
    return float(fields["usec"]) / float(fields["calls"])


async def run(variant: Variant, call: Call, brokers: list[Registration], calls: int) -> tuple[float, float]:
    """Microseconds per call that the store's script takes, and that this process takes."""

    async def caller(start: int) -> None:
        for n in range(start, calls, IN_FLIGHT):
            await call(variant, brokers[n % len(brokers)])

    await variant.namespace.client.call("CONFIG", "RESETSTAT")
    began = time.process_time()
    await asyncio.gather(*(caller(start) for start in range(IN_FLIGHT)))
    spent = time.process_time() - began
    return await store_us(variant.namespace), spent / calls * 1e6


async def measure(rounds: int, calls: int) -> None:
    brokers = [registration(n) for n in range(BROKERS)]
    with EmbeddedStore(None) as store:
        client = StoreClient(StoreUrl.parse(store.url), slot_key="rb:{bench}:meta", timeout_ms=30_000)
        await client.open()
        scripts = ScriptSet.load()
        namespace = Namespace(client, Keys("bench"), scripts)
        plain = Namespace(client, Keys("bench"), without_gaps(scripts))
        await register_all(namespace, brokers)
        live = LiveSettings(load({"redis_url": store.url}))
        variants = [
            Variant("without", plain, None),
            Variant("with", namespace, HeartbeatGaps(namespace, live, "benchmark")),
        ]
        print(f"{rounds} rounds of {calls:,} calls, {IN_FLIGHT} in flight, {BROKERS} brokers; µs per call, best round")
        print(f"{'':12}{'':10}{'without':>10}{'with':>10}{'ratio':>8}{'target':>8}")
        for name, call in (("touch", touch), ("heartbeat", heartbeat)):
            found: dict[str, list[tuple[float, float]]] = {variant.name: [] for variant in variants}
            for n in range(rounds + 1):
                for variant in variants if n % 2 else reversed(variants):
                    spent = await run(variant, call, brokers, calls)
                    if n:  # the first one warms up
                        found[variant.name].append(spent)
            print_rows(name, found)
        print_counting(HeartbeatGaps(namespace, live, "benchmark"))
        await client.close()


def print_rows(name: str, found: dict[str, list[tuple[float, float]]]) -> None:
    for at, place in enumerate(("store", "worker")):
        without, with_ = (min(spent[at] for spent in found[variant]) for variant in ("without", "with"))
        figures = f"{without:>10.2f}{with_:>10.2f}{with_ / without:>8.3f}"
        print(f"{name:12}{place:10}{figures}{'≤ ' + format(TARGET, '.2f'):>8}")
    median = statistics.median(store for store, _ in found["with"])
    print(f"{name:12}{'median':10}{'':10}{median:>10.2f}{'':8}{'≤ ' + str(STORE_TARGET_US):>8}")


def print_counting(gaps: HeartbeatGaps) -> None:
    began = time.perf_counter()
    for n in range(200_000):
        gaps.record(Seat("bench", "broker", n & 127), 30_000 + (n & 1023))
    print(f"{'counting':12}{'worker':10}{'':10}{(time.perf_counter() - began) / 200_000 * 1e6:>10.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=2_500)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.rounds, arguments.calls))
