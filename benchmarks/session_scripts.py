"""How long do the scripts about sessions block the store, with the batches that workers send? Limit: 20 ms.

Starts a store of its own and registers brokers of 10 topics each. Then the connections of all brokers end at once, as
when a balancer restarts. Measured with one worker and with many, because the check for another session reads those of
every worker.

.venv/bin/python -m benchmarks.session_scripts
"""

import argparse
import asyncio
import secrets
from collections.abc import Awaitable
from typing import Any

from routebook.model.broker import DataVersion, QueueData, Registration
from routebook.model.names import Caller
from routebook.registry.sessions import SESSIONS_PER_CALL
from routebook.replica.load import in_steps
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from routebook.store.registration import QueueDifference, register_broker
from routebook.store.removal import REMOVALS_PER_CALL, Removal, unregister_brokers
from routebook.store.sessions import (
    EndedSession,
    OpenedSession,
    close_sessions,
    open_sessions,
    resolve_lost_connections,
)
from routebook.store.workers import open_namespace, renew_worker_lease
from tests.support.scripts import NO_BRAKE

CALLER = Caller("benchmark", "127.0.0.1:1")
TOPICS = {f"a-topic-with-a-usual-name-{n}": QueueData(8, 8) for n in range(10)}
WORKERS = (1, 4, 16, 64)


async def register_all(namespace: Namespace, history: str, brokers: int) -> list[tuple[str, str]]:
    """Name and incarnation of each instance."""
    instances = []
    for number in range(brokers):
        broker = Registration(
            cluster="bench",
            broker=f"broker-{number}",
            broker_id=0,
            address=f"127.{number >> 16}.{number >> 8 & 255}.{number & 255}:10911",
            data_version=DataVersion(0, 1, 1),
            topics=TOPICS,
        )
        reply = await register_broker(
            namespace,
            broker,
            QueueDifference(new=TOPICS),
            caller=CALLER,
            timeout_ms=120_000,
            digest="d" * 32,
            base=(history, 0),
            replaces_known=True,
            run_steps=in_steps,
        )
        instances.append((broker.instance_name, reply.incarnation))
    return instances


async def measured(client: StoreClient, operation: Awaitable[Any]) -> tuple[Any, float]:
    """Its result, and the time of the longest script that it ran, in ms."""
    await client.call("SLOWLOG", "RESET")
    result = await operation
    entries = await client.call("SLOWLOG", "GET", 1000)
    return result, max((entry[2] / 1000 for entry in entries if entry[3][0] == b"EVALSHA"), default=0.0)


async def measure_with(url: str, workers: int) -> dict[str, float]:
    keys = Keys(f"bench-{secrets.token_hex(3)}")
    client = StoreClient(StoreUrl.parse(url), slot_key=keys.meta, timeout_ms=30_000)
    await client.open()
    namespace = Namespace(client, keys, ScriptSet.load())
    await client.call("CONFIG", "SET", "slowlog-log-slower-than", 0)
    await client.call("CONFIG", "SET", "slowlog-max-len", 1000)
    for name in namespace.scripts.names:
        await client.call("SCRIPT", "LOAD", namespace.scripts[name].source)
    history = (await open_namespace(namespace)).history
    for number in range(workers):
        await renew_worker_lease(namespace, f"worker-{number}", 600_000, "{}", caller=CALLER)
    instances = await register_all(namespace, history, 2 * REMOVALS_PER_CALL)
    found: dict[str, float] = {}
    batch = instances[:SESSIONS_PER_CALL]
    opened = [OpenedSession(instance_name, incarnation, 1) for instance_name, incarnation in batch]
    _, found[f"open {len(batch)} sessions"] = await measured(
        client, open_sessions(namespace, "worker-0", opened, caller=CALLER)
    )
    ended = [EndedSession(instance_name, incarnation, 1, 0) for instance_name, incarnation in batch]
    results, found[f"close {len(batch)}"] = await measured(client, close_sessions(namespace, "worker-0", ended))
    lost = [connection for _, connection in results if connection]
    _, found["resolve them"] = await measured(client, resolve_lost_connections(namespace, lost))
    lost = [connection for _, connection in await close_sessions(namespace, "worker-0", ended) if connection]
    lost_removals = [connection.removal() for connection in lost[:REMOVALS_PER_CALL]]
    requested = [_removal(instance_name, incarnation) for instance_name, incarnation in instances[REMOVALS_PER_CALL:]]
    for cause, part in (("lost", lost_removals), ("104", requested)):
        _, found[f"remove {len(part)} ({cause})"] = await measured(
            client, unregister_brokers(namespace, [(removal, CALLER) for removal in part], NO_BRAKE)
        )
    await client.close()
    return found


def _removal(instance_name: str, incarnation: str) -> Removal:
    cluster, _, address = instance_name.rpartition("/")
    number = [int(part) for part in address.partition(":")[0].split(".")]
    broker = f"broker-{(number[1] << 16) + (number[2] << 8) + number[3]}"
    return Removal(cluster, broker, 0, address, incarnation)


async def measure(rounds: int) -> None:
    with EmbeddedStore(None) as store:
        print(f"{'ms blocked, worst of ' + str(rounds):24}" + "".join(f"{f'{count} workers':>14}" for count in WORKERS))
        runs = {count: [await measure_with(store.url, count) for _ in range(rounds)] for count in WORKERS}
        for name in runs[WORKERS[0]][0]:
            cells = [max(run.get(name, 0.0) for run in runs[count]) for count in WORKERS]
            print(f"{name:24}" + "".join(f"{cell:>14.2f}" for cell in cells))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(measure(parser.parse_args().rounds))
