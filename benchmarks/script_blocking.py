"""How long does the longest single command block the store, for groups of 100 to 70,000 topics?

Limits: 10 ms with 10,000 topics, 20 ms with 70,000. The program starts a store of its own and registers one group per
size. Each row is one operation. Its figure is the CPU time that the store's main thread spent on the most expensive
command that the operation sent, with reading the request and writing the reply: during that time no other client is
answered. It is CPU time because a busy machine adds only waiting. Where the system does not report it (other than
Linux), the time until the reply is used.

    .venv/bin/python -m benchmarks.script_blocking
    .venv/bin/python -m benchmarks.script_blocking --rounds 3 --only registration
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from routebook.background.kv_file import import_kv_file
from routebook.background.restoring import write_back_queues
from routebook.model.broker import DataVersion, QueueData, Registration, TopicMapping
from routebook.model.names import Caller
from routebook.replica.load import in_steps
from routebook.store.administration import delete_topic, set_write_permission
from routebook.store.connection.client import StoreClient, Word
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.history import append_baseline, read_history_state, trim_history
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from routebook.store.reads import read_groups
from routebook.store.registration import QueueDifference, register_broker, touch_broker
from routebook.store.removal import DueInstance, Removal, expire_brokers, unregister_brokers
from routebook.store.workers import acquire_lease, open_namespace
from tests.support.scripts import NO_BRAKE

CALLER = Caller("benchmark", "127.0.0.1:1")
DIGEST = "d" * 32
SIZES = (100, 1_000, 10_000, 70_000)
LIMITS_MS = {10_000: 10.0, 70_000: 20.0}

Operation = Callable[[], Awaitable[Any]]


class MeasuringClient(StoreClient):
    """Remembers what the most expensive command cost. Commands must be sent one after the other."""

    def __init__(self, url: str, process_id: int) -> None:
        super().__init__(StoreUrl.parse(url), slot_key="rb:{bench}:meta", timeout_ms=30_000)
        self._cpu_file = Path(f"/proc/{process_id}/task/{process_id}/schedstat")
        self.longest_ms = 0.0

    async def call(self, *words: Word, timeout_ms: int | None = None, epoch: int | None = None) -> Any:
        before = self._spent_ms()
        reply = await super().call(*words, timeout_ms=timeout_ms, epoch=epoch)
        self.longest_ms = max(self.longest_ms, self._spent_ms() - before)
        return reply

    async def pipeline(self, commands: Sequence[Sequence[Word]], timeout_ms: int | None = None) -> list[Any]:
        before = self._spent_ms()
        replies = await super().pipeline(commands, timeout_ms)
        self.longest_ms = max(self.longest_ms, self._spent_ms() - before)
        return replies

    def _spent_ms(self) -> float:
        if self._cpu_file.exists():
            return int(self._cpu_file.read_text().split()[0]) / 1e6
        return time.perf_counter() * 1e3


class Bench:
    """The operations on one group with that many topics."""

    def __init__(self, client: MeasuringClient, namespace: Namespace, history: str, lease: str, topics: int) -> None:
        self.client = client
        self.namespace = namespace
        self.history = history
        self.lease = lease
        self.topics = {f"a-topic-with-a-usual-name-{n:06d}": QueueData(8, 8, 6, n % 4) for n in range(topics)}
        self.master = Registration(
            cluster="bench",
            broker=f"broker-{topics}",
            broker_id=0,
            address="127.0.0.2:10911",
            acting_master=True,
            data_version=DataVersion(0, 1, 1),
            topics=self.topics,
        )
        self.slave = replace(self.master, broker_id=1, address="127.0.0.3:10911")

    async def longest(self, operation: Operation) -> float:
        """The most expensive command that the operation sends, in ms."""
        self.client.longest_ms = 0.0
        await operation()
        return self.client.longest_ms

    async def revision(self) -> int:
        image = (await read_groups(self.namespace, {self.master.broker: frozenset()}))[self.master.broker]
        return image.group.revision if image.group else 0

    async def register(self, registration: Registration, difference: QueueDifference, counter: int = 1) -> None:
        await register_broker(
            self.namespace,
            replace(registration, data_version=DataVersion(0, counter, counter)),
            difference,
            caller=CALLER,
            timeout_ms=120_000,
            digest=DIGEST,
            base=(self.history, await self.revision()),
            replaces_known=True,
            run_steps=in_steps,
        )

    async def unregister(self, registration: Registration) -> None:
        removal = Removal("bench", registration.broker, registration.broker_id, registration.address)
        await unregister_brokers(self.namespace, [(removal, CALLER)], NO_BRAKE)

    async def set_write_permission(self, *, writable: bool) -> None:
        await set_write_permission(self.namespace, self.master.broker, writable=writable, caller=CALLER)

    async def write_baseline(self) -> None:
        place = ""
        while True:
            _, place = await append_baseline(self.namespace, self.lease, self.master.broker, place, caller=CALLER)
            if not place:
                return

    async def expire(self) -> None:
        keys, name = self.namespace.keys, self.slave.instance_name
        incarnation = await self.client.call("HGET", keys.of("instance", name), "inc")
        await self.client.call("ZADD", keys.table("deadlines"), 1, name)
        due = [DueInstance(name, incarnation.decode(), 1)]
        await expire_brokers(self.namespace, self.lease, due, caller=CALLER)

    async def import_key_values(self) -> float:
        table = {"ns": {f"a-key-with-a-usual-name-{n}": "broker-a:8;broker-b:8" for n in range(len(self.topics))}}
        keys = self.namespace.keys
        await self.client.call("DEL", keys.table("kv"), keys.of("kv", "ns"))
        await self.client.call("HDEL", keys.meta, "kv_imported")
        with TemporaryDirectory() as folder:
            file = Path(folder, "kvConfig.json")
            file.write_text(json.dumps({"configTable": table}))
            return await self.longest(lambda: import_kv_file(self.namespace, str(file), "benchmark"))

    async def restore_topics(self) -> float:
        lost = {f"by-request-{topic}": replace(queue, by_request=True) for topic, queue in self.topics.items()}
        revision, broker = await self.revision(), self.master.broker
        found = await self.longest(
            lambda: write_back_queues(self.namespace, broker, lost, revision=revision, caller=CALLER)
        )
        await self.client.call("HDEL", self.namespace.keys.of("queues", broker), *lost)
        return found

    async def delete_from_all_brokers(self) -> float:
        """The brokers are written straight into the store: registering them would take minutes."""
        keys, cluster, packed = self.namespace.keys, f"wide-{len(self.topics)}", QueueData(8, 8).pack()
        brokers = [f"{cluster}-broker-{n}" for n in range(len(self.topics))]
        await self.client.call("SADD", keys.of("cluster", cluster), *brokers)
        await self.client.pipeline([("HSET", keys.of("queues", broker), "wide", packed) for broker in brokers])
        return await self.longest(lambda: delete_topic(self.namespace, "wide", cluster=cluster, caller=CALLER))

    async def trim(self) -> float:
        """The deletion before has left one entry per broker."""
        state = await read_history_state(self.namespace)
        return await self.longest(lambda: trim_history(self.namespace, state, state.newest))

    async def register_all_ways(self) -> dict[str, float]:
        read_only = {topic: replace(queue, perm=4) for topic, queue in self.topics.items()}
        few = dict(list(read_only.items())[:6_000])
        mappings = {topic: TopicMapping(topic, self.master.broker, 8, 1) for topic in list(self.topics)[:10_000]}
        return {
            "registration: first": await self.longest(
                lambda: self.register(self.master, QueueDifference(new=self.topics, unchanged=0))
            ),
            "registration: touch": await self.longest(
                lambda: touch_broker(self.namespace, self.master, caller=CALLER, digest=DIGEST)
            ),
            "registration: nothing changed, in full": await self.longest(
                lambda: self.register(self.master, QueueDifference())
            ),
            "registration: up to 6,000 topics changed": await self.longest(
                lambda: self.register(self.master, QueueDifference(differing=few, known=self.topics), 2)
            ),
            "registration: every topic changed": await self.longest(
                lambda: self.register(
                    self.master, QueueDifference(differing=read_only, unchanged=0, known=self.topics), 3
                )
            ),
            "registration: up to 10,000 mappings": await self.longest(
                lambda: self.register(self.master, QueueDifference(mappings=mappings), 4)
            ),
            "registration: every topic removed": await self.longest(
                lambda: self.register(
                    self.master, QueueDifference(dropped=sorted(self.topics), unchanged=0, known=self.topics), 5
                )
            ),
        }

    async def run(self) -> dict[str, float]:
        found = await self.register_all_ways()
        await self.register(self.master, QueueDifference(new=self.topics, unchanged=0), 6)
        await self.register(self.slave, QueueDifference(), 6)
        found |= {
            "write permission taken": await self.longest(lambda: self.set_write_permission(writable=False)),
            "write permission given": await self.longest(lambda: self.set_write_permission(writable=True)),
            "a replica's re-read": await self.longest(lambda: read_groups(self.namespace, {self.master.broker: None})),
            "a baseline": await self.longest(self.write_baseline),
            "the master of an acting group leaves": await self.longest(lambda: self.unregister(self.master)),
            "key-values of Apache's file": await self.import_key_values(),
            "topics restored after a loss": await self.restore_topics(),
            "a topic of as many brokers deleted": await self.delete_from_all_brokers(),
            "as many changes trimmed": await self.trim(),
            "the last broker expires": await self.longest(self.expire),
        }
        await self.client.call("DEL", self.namespace.keys.of("mapping", self.master.broker))
        return found


async def measure(rounds: int, only: str) -> None:
    with EmbeddedStore(None) as store:
        client = MeasuringClient(store.url, store.process_id)
        await client.open()
        namespace = Namespace(client, Keys("bench"), ScriptSet.load())
        history = (await open_namespace(namespace)).history
        _, lease = await acquire_lease(namespace, "benchmark", 3_600_000)
        await load_scripts(namespace)
        results: dict[int, list[dict[str, float]]] = {}
        for size in SIZES:
            bench = Bench(client, namespace, history, lease.whole, size)
            results[size] = [await bench.run() for _ in range(rounds)]
        await client.close()
    print_table(results, rounds, only)


async def load_scripts(namespace: Namespace) -> None:
    """Otherwise the first call of each script would include compiling it."""
    for name in namespace.scripts.names:
        await namespace.client.call("SCRIPT", "LOAD", namespace.scripts[name].source)


def print_table(results: dict[int, list[dict[str, float]]], rounds: int, only: str) -> None:
    print(f"{'ms of CPU, median and worst of ' + str(rounds):44}" + "".join(f"{size:>18,}" for size in SIZES))
    for name in results[SIZES[0]][0]:
        if only not in name:
            continue
        cells = {size: [run[name] for run in results[size]] for size in SIZES}
        over = any(statistics.median(cells[size]) > limit for size, limit in LIMITS_MS.items())
        figures = "".join(f"{statistics.median(cell):>10.2f} {max(cell):>7.2f}" for cell in cells.values())
        print(f"{name:44}{figures}{'  over the limit' if over else ''}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="print only rows that contain this text")
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.rounds, arguments.only))
