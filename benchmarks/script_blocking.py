"""How long does one script block the store, for brokers of 100 to 70,000 topics? Goal: 20 ms with 10,000.

Starts a store of its own, registers one broker a size, and reads the server's own slow log: what others wait for. Then
as many key-values of Apache's file, as many topics to write back after a loss, one topic of as many brokers, as many
changes to trim, and the group told in a baseline.

    .venv/bin/python benchmarks/script_blocking.py
"""

import argparse
import asyncio
import json
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from routebook.background.kv_file import import_kv_file
from routebook.background.restoring import write_back_queues
from routebook.model.broker import DataVersion, Registration
from routebook.model.names import Caller
from routebook.model.topic import QueueData
from routebook.store.administration import delete_topic, set_write_permission
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.history import append_baseline, read_history_state, trim_history
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace
from routebook.store.reads import read_groups
from routebook.store.registration import QueueDifference, register_broker, touch_broker
from routebook.store.removal import DueInstance, expire_brokers
from routebook.store.scripts import ScriptSet
from routebook.store.workers import acquire_lease, open_namespace

CALLER = Caller("benchmark", "127.0.0.1:1")
DIGEST = "d" * 32
SIZES = (100, 1_000, 10_000, 70_000)
LOG_ENTRIES = 2_000
"""More than the longest work has commands."""


class Bench:
    def __init__(self, namespace: Namespace, history: str, topics: int) -> None:
        self.namespace = namespace
        self.history = history
        self.said = Registration(
            cluster="bench",
            broker=f"broker-{topics}",
            broker_id=0,
            address="127.0.0.2:10911",
            data_version=DataVersion(0, 1, 1),
            topics={f"a-topic-with-a-usual-name-{n:06d}": QueueData(8, 8, 6, n % 4) for n in range(topics)},
        )

    async def register(self, difference: QueueDifference, counter: int = 1) -> None:
        image = (await read_groups(self.namespace, {self.said.broker: frozenset()}))[self.said.broker]
        await register_broker(
            self.namespace,
            replace(self.said, data_version=DataVersion(0, counter, counter)),
            difference,
            caller=CALLER,
            timeout_ms=120_000,
            digest=DIGEST,
            base=(self.history, image.group.revision if image.group else 0),
            replaces_known=True,
        )

    async def blocked(self, work: Callable[[], Awaitable[Any]], command: str = "EVALSHA") -> float:
        """The longest single command of that kind, in ms."""
        client = self.namespace.client
        await client.call("SLOWLOG", "RESET")
        await work()
        entries = await client.call("SLOWLOG", "GET", LOG_ENTRIES)
        return max((entry[2] / 1000 for entry in entries if entry[3][0].decode() == command), default=0.0)

    async def import_key_values(self) -> float:
        table = {"ns": {f"a-key-with-a-usual-name-{n}": "broker-a:8;broker-b:8" for n in range(len(self.said.topics))}}
        keys = self.namespace.keys
        await self.namespace.client.call("DEL", keys.table("kv"), keys.of("kv", "ns"))
        await self.namespace.client.call("HDEL", keys.meta, "kv_imported")
        with TemporaryDirectory() as folder:
            file = Path(folder, "kvConfig.json")
            file.write_text(json.dumps({"configTable": table}))
            return await self.blocked(lambda: import_kv_file(self.namespace, str(file), "benchmark"))

    async def write_back(self) -> float:
        image = (await read_groups(self.namespace, {self.said.broker: frozenset()}))[self.said.broker]
        lost = {f"by-request-{topic}": replace(queue, by_request=True) for topic, queue in self.said.topics.items()}
        revision = image.group.revision if image.group else 0
        blocked = await self.blocked(
            lambda: write_back_queues(self.namespace, self.said.broker, lost, revision=revision, caller=CALLER)
        )
        await self.namespace.client.call("HDEL", self.namespace.keys.of("queues", self.said.broker), *lost)
        return blocked

    async def delete_from_all_brokers(self) -> float:
        """The brokers are put straight into the tables: registering them would take minutes."""
        keys, cluster, packed = self.namespace.keys, f"wide-{len(self.said.topics)}", QueueData(8, 8).pack()
        brokers = [f"{cluster}-broker-{n}" for n in range(len(self.said.topics))]
        await self.namespace.client.call("SADD", keys.of("cluster", cluster), *brokers)
        await self.namespace.client.pipeline(
            [("HSET", keys.of("queues", broker), "wide", packed) for broker in brokers]
        )
        return await self.blocked(lambda: delete_topic(self.namespace, "wide", cluster=cluster, caller=CALLER))

    async def trim(self) -> float:
        """The deletion before has left an entry a broker."""
        state = await read_history_state(self.namespace)
        return await self.blocked(lambda: trim_history(self.namespace, state, state.newest), "XTRIM")

    async def tell_group(self, lease: str) -> None:
        place, is_told = "", False
        while not is_told:
            _, place = await append_baseline(self.namespace, lease, self.said.broker, place, caller=CALLER)
            is_told = not place

    async def run(self) -> dict[str, float]:
        wiped = {topic: replace(queue, perm=4) for topic, queue in self.said.topics.items()}
        instance_name = f"bench/{self.said.address}"
        found = {
            "first registration": await self.blocked(lambda: self.register(QueueDifference(new=self.said.topics))),
            "touch": await self.blocked(lambda: touch_broker(self.namespace, self.said, caller=CALLER, digest=DIGEST)),
            "nothing changed, in full": await self.blocked(lambda: self.register(QueueDifference())),
            "every topic changed": await self.blocked(lambda: self.register(QueueDifference(differing=wiped), 2)),
            "write permission": await self.blocked(
                lambda: set_write_permission(self.namespace, self.said.broker, writable=True, caller=CALLER)
            ),
            "a replica's re-read": await self.blocked(lambda: read_groups(self.namespace, {self.said.broker: None})),
        }
        found["key-values of Apache's file"] = await self.import_key_values()
        found["topics written back after a loss"] = await self.write_back()
        found["a topic of so many brokers deleted"] = await self.delete_from_all_brokers()
        found["the history trimmed of so many changes"] = await self.trim()
        _, lease = await acquire_lease(self.namespace, "benchmark", 60_000)
        found["one part of a baseline"] = await self.blocked(lambda: self.tell_group(lease.whole))
        incarnation = await self.namespace.client.call("HGET", self.namespace.keys.of("instance", instance_name), "inc")
        await self.namespace.client.call("ZADD", self.namespace.keys.table("deadlines"), 1, instance_name)
        due = [DueInstance(instance_name, incarnation.decode(), 1)]
        found["expiry"] = await self.blocked(lambda: expire_brokers(self.namespace, lease.whole, due, caller=CALLER))
        return found


async def measure(rounds: int) -> None:
    with EmbeddedStore(None) as store:
        client = StoreClient(StoreUrl.parse(store.url), slot_key="rb:{bench}:meta", timeout_ms=30_000)
        await client.open()
        namespace = Namespace(client, Keys("bench"), ScriptSet.load())
        await client.call("CONFIG", "SET", "slowlog-log-slower-than", 0)
        await client.call("CONFIG", "SET", "slowlog-max-len", LOG_ENTRIES)
        history = (await open_namespace(namespace)).history
        print(f"{'ms blocked (median, worst of ' + str(rounds) + ')':38}" + "".join(f"{size:>18,}" for size in SIZES))
        results = {size: [await Bench(namespace, history, size).run() for _ in range(rounds)] for size in SIZES}
        for name in results[SIZES[0]][0]:
            cells = [[run[name] for run in results[size]] for size in SIZES]
            print(f"{name:38}" + "".join(f"{statistics.median(c):>10.2f} {max(c):>7.2f}" for c in cells))
        await client.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(measure(parser.parse_args().rounds))
