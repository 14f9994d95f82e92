"""Row 12: the old primary and one worker are cut off from the rest, where Sentinel promotes a replica."""

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest
import redis

from routebook.store.keys import Keys
from tests.faults.laboratory import Laboratory, Store, seconds_until
from tests.faults.recording import CutOff
from tests.faults.traffic import Worker
from tests.support.fault_proxy import FaultProxy
from tests.support.figures import Figures
from tests.support.topologies import MASTER, SentinelTrio, ask
from tests.support.waiting import until

pytestmark = pytest.mark.slow

MIN_REPLICAS = {"min-replicas-to-write": "1", "min-replicas-max-lag": "7"}
"""As docs/operations.md advises. Redis counts whole seconds: with 8 it accepted writes for 9.7 s."""


class Partition:
    """Proxies lie between the primary and its replicas, and between one worker and the sentinels."""

    def __init__(self, trio: SentinelTrio, stack: AsyncExitStack) -> None:
        self.trio = trio
        self.primary, self.promoted, self.other = (
            store.port or 0 for store in (trio.primary, trio.replicas[0], trio.replicas[1])
        )
        self._stack = stack
        self._sentinels: list[FaultProxy] = []
        self._replication: FaultProxy | None = None

    async def sentinels_of_one_side(self) -> str:
        """The URL of a worker that will be on the side of the old primary."""
        for port in self.trio.sentinel_ports:
            self._sentinels.append(await self._stack.enter_async_context(FaultProxy("127.0.0.1", port)))
        return f"sentinel://{','.join(f'127.0.0.1:{proxy.port}' for proxy in self._sentinels)}/{MASTER}"

    async def begin(self) -> None:
        """No connection is closed: packets only stop. The sentinels name the promoted replica when this returns."""
        for proxy in self._sentinels:
            proxy.stall()
        for sentinel in self.trio.sentinel_ports:
            await asyncio.to_thread(ask, sentinel, "SENTINEL", "REMOVE", MASTER)
        self._replication = await self._stack.enter_async_context(FaultProxy("127.0.0.1", self.primary))
        for replica in (self.promoted, self.other):
            await asyncio.to_thread(ask, replica, "REPLICAOF", "127.0.0.1", self._replication.port)
            await until(partial(_follows, replica), every_s=0.1)
        await until(self._counts_both_replicas, every_s=0.1)
        self._replication.stall()
        await asyncio.to_thread(ask, self.promoted, "REPLICAOF", "NO", "ONE")
        await asyncio.to_thread(ask, self.other, "REPLICAOF", "127.0.0.1", self.promoted)
        await until(partial(_follows, self.other), every_s=0.1)
        for sentinel in self.trio.sentinel_ports:
            await asyncio.to_thread(ask, sentinel, "SENTINEL", "MONITOR", MASTER, "127.0.0.1", self.promoted, 2)

    async def _counts_both_replicas(self) -> bool:
        found = await asyncio.to_thread(ask, self.primary, "INFO", "replication")
        return int(found["min_slaves_good_slaves"]) == 2

    async def heal(self) -> None:
        """What sentinels do when they reach the old primary again."""
        assert self._replication
        self._replication.heal()
        self._replication.cut()
        for proxy in self._sentinels:
            proxy.heal()
            proxy.cut()
        await asyncio.to_thread(ask, self.primary, "REPLICAOF", "127.0.0.1", self.promoted)


async def _follows(replica: int) -> bool:
    try:
        role = await asyncio.to_thread(ask, replica, "ROLE")
    except redis.RedisError:
        return False
    return bool(role[0] == "slave" and role[3] == "connected")


class Tokens:
    """The leases in both primaries, read as often as possible."""

    def __init__(self, ports: list[int], namespace: str) -> None:
        self._ports = ports
        self._key = Keys(namespace).table("leader")
        self.leases: dict[str, set[str]] = {}

    async def observe(self) -> None:
        while True:
            for port in self._ports:
                try:
                    lease = await asyncio.to_thread(ask, port, "GET", self._key)
                except redis.RedisError:
                    continue
                if lease:
                    self.leases.setdefault(lease.partition(":")[0], set()).add(lease)
            await asyncio.sleep(0.05)

    @property
    def reused(self) -> list[str]:
        return [token for token, leases in self.leases.items() if len(leases) > 1]


async def _writes(worker: Worker, value: int) -> bool:
    answer = await asyncio.to_thread(worker.process.put, "/v1/kv/probe/at", {"value": str(value)})
    return bool(answer.status_code == 200)


async def _is_refused(worker: Worker, writes: list[float]) -> bool:
    if not await _writes(worker, len(writes)):
        return True
    writes.append(time.monotonic())
    return False


async def _have_equal_digests(laboratory: Laboratory) -> bool:
    found = set()
    for worker in laboratory.running_workers:
        try:
            status = (await asyncio.to_thread(worker.process.get, "/v1/status")).json()
        except httpx.HTTPError:
            return False
        found.add((status["history"], status["version"], status["digest"]))
    return len(found) == 1


async def test_an_old_primary_that_is_cut_off_refuses_writes_and_costs_no_broker(
    namespace_name: str, tmp_path: Path, seed: int, figure: Figures
) -> None:
    async with AsyncExitStack() as stack:
        trio = await asyncio.to_thread(stack.enter_context, SentinelTrio(MIN_REPLICAS, replicas=2))
        partition = Partition(trio, stack)
        store = Store(trio.url, sentinel=trio)
        # Until their brokers are elsewhere, heartbeats go to the old primary: 9 s until it refuses them, 3 s until the
        # worker is cut off, 5 s in which it closes the connections. The defaults leave more: 24 s of 120 s.
        settings = {"broker_timeout_ms": 24_000, "store_cut_off_ms": 3_000, "hold_minimum": 1_000}
        laboratory = await stack.enter_async_context(Laboratory(store, namespace_name, tmp_path, seed, **settings))
        cut_off = await laboratory.start_worker(url=await partition.sentinels_of_one_side())
        await laboratory.start(workers=2, brokers=9)
        tokens = Tokens([partition.primary, partition.promoted], namespace_name)
        observing = asyncio.create_task(tokens.observe())
        await laboratory.calm()
        await partition.begin()
        begin = time.monotonic()
        lost: list[float] = []
        refused_s = await seconds_until(lambda: _is_refused(cut_off, lost))
        figure("the old primary refuses writes after", refused_s, "s", at_most=10)
        figure("acknowledged writes of the probe that were lost", len(lost))
        others = [worker for worker in laboratory.running_workers if worker is not cut_off]
        moved_s = await seconds_until(lambda: all(broker.worker in others for broker in laboratory.brokers.values()))
        figure("brokers are on the other side after the refusal within", moved_s, "s", at_most=15)
        # Longer than a broker's timeout, so that each broker whose heartbeats were refused would have expired.
        await asyncio.sleep(settings["broker_timeout_ms"] / 1000)
        await partition.heal()
        laboratory.churns = False
        equal_s = await seconds_until(lambda: _have_equal_digests(laboratory))
        figure("digests equal after the partition heals", equal_s, "s", at_most=35)
        laboratory.recording.cut_off.append(CutOff(cut_off.name, begin, time.monotonic()))
        laboratory.churns = True
        await laboratory.calm()
        observing.cancel()
        await asyncio.gather(observing, return_exceptions=True)
        figure("tokens used twice", len(tokens.reused), exactly=0)
        await laboratory.prove(required=("I1", "I4", "I5", "I6", "I9"))
