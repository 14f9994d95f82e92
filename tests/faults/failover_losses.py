"""A failover that loses acknowledged writes, again and again, while a fleet changes.

    python -m tests.faults.failover_losses [--count 30] [--seed 1] [--period 3]

Each failover: the replica is cut off from its primary; for a random time the primary acknowledges writes that it can no
longer pass on; in some of them the leader is suspended meanwhile, so that another worker takes a lease that will be
lost; the primary is killed; Sentinel promotes the replica. The acknowledged writes of that time are lost.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import redis

from routebook.errors import StoreUnavailableError
from routebook.replica.load import load
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.history import changes_between
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from routebook.store.reads import read_history_head
from tests.faults.churning_fleet import ChurningFleet
from tests.runtime.running import Running
from tests.support.topologies import MASTER, SentinelTrio, ask, kill
from tests.support.waiting import until

NAMESPACE = "t"
LEASE_MS = 1500
WORKERS = 3
WRITES_WORK_WITHIN_S = 15.0
REPAIR_AFTER_PERIOD_S = 5.0
"""A broker that registers every 30 s then has its lost registration repaired within 35 s."""

PROMOTABLE_S = 4.0
"""Sentinel promotes no replica that was without its primary for ten times `down-after-milliseconds`, 5 s here."""
RECOVERY_PERIODS = 5
"""As in the default settings. A broker that neither store has, and that does not return, is shown for this time."""


@dataclass(frozen=True)
class Failover:
    """One failover, with its times counted from the kill of the primary."""

    unreplicated_s: float
    """How long the primary acknowledged writes without a replica."""
    leader_suspended: bool
    lost_writes: int
    """Acknowledged registrations and unregistrations that changed something, and are not in the promoted store."""
    lost_versions: int
    """Entries of the history that are not in the promoted store."""
    writes_work_s: float
    repaired_s: float
    digests_equal_s: float


@dataclass
class Result:
    seed: int
    period_s: float
    failovers: list[Failover] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    lookups: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    lost_tails_noticed: int = 0
    slowest_write_s: float = 0.0

    @property
    def lost_writes(self) -> int:
        return sum(failover.lost_writes for failover in self.failovers)

    def figures(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "failovers": len(self.failovers),
            "failovers that lost writes": sum(failover.lost_writes > 0 for failover in self.failovers),
            "acknowledged writes lost": self.lost_writes,
            "entries of the history lost": sum(failover.lost_versions for failover in self.failovers),
            "leader suspended": sum(failover.leader_suspended for failover in self.failovers),
            "writes work again after, s": _longest(failover.writes_work_s for failover in self.failovers),
            "registration period, s": self.period_s,
            "lost registrations repaired after, s": _longest(failover.repaired_s for failover in self.failovers),
            "digests equal after, s": _longest(failover.digests_equal_s for failover in self.failovers),
            "slowest answer to a registration, s": round(self.slowest_write_s, 2),
            "lookups by code": self.lookups,
            "leases seen": self.tokens,
            "lost changes noticed by workers": self.lost_tails_noticed,
            "violations": len(self.violations),
        }


def _longest(seconds: Any) -> float:
    return round(max(seconds, default=0.0), 1)


class Stores:
    """A primary and a replica that change roles with every failover."""

    def __init__(self, trio: SentinelTrio) -> None:
        self._trio = trio
        self.primary, self.replica = trio.primary, trio.replica

    def cut_off_replica(self) -> None:
        """The replica can no longer connect to its primary. All other connections stay."""
        ask(_port(self.replica), "CONFIG", "SET", "masterauth", "not-its-password")
        ask(_port(self.primary), "CLIENT", "KILL", "TYPE", "replica")

    def connect_replica(self) -> None:
        ask(_port(self.replica), "CONFIG", "SET", "masterauth", "")

    def fail_primary(self) -> None:
        kill(self.primary)
        self.connect_replica()

    def return_as_replica(self) -> None:
        """The machine of the former primary is back, without data."""
        former, self.primary = self.primary, self.replica
        self.replica = former
        former.stop()
        former.start()
        ask(_port(former), "REPLICAOF", "127.0.0.1", _port(self.primary))

    def newest_version(self, store: EmbeddedStore) -> int:
        entries = ask(_port(store), "XREVRANGE", Keys(NAMESPACE).changes, "+", "-", "COUNT", 1)
        return int(entries[0][0].partition("-")[2]) if entries else 0

    def leases(self) -> set[str]:
        """The lease in each store that answers."""
        found = set()
        for store in (self.primary, self.replica):
            try:
                found.add(ask(_port(store), "GET", Keys(NAMESPACE).table("leader")))
            except redis.RedisError:
                continue
        return {lease for lease in found if lease}

    def is_promoted(self) -> bool:
        return bool(ask(_port(self.replica), "ROLE")[0] == "master")

    def is_whole(self) -> bool:
        """The replica follows the primary, and every sentinel knows both and would fail over."""
        role = ask(_port(self.replica), "ROLE")
        return role[0] == "slave" and role[3] == "connected" and all(map(self._is_known, self._trio.sentinel_ports))

    def _is_known(self, sentinel: int) -> bool:
        replicas = [_fields(reply) for reply in ask(sentinel, "SENTINEL", "REPLICAS", MASTER)]
        primary = _fields(ask(sentinel, "SENTINEL", "MASTER", MASTER))
        return (
            primary["flags"] == "master"
            and int(primary["port"]) == _port(self.primary)
            and [(one["flags"], one["master-link-status"]) for one in replicas] == [("slave", "ok")]
        )


def _fields(reply: Sequence[str]) -> dict[str, str]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _port(store: EmbeddedStore) -> int:
    assert store.port
    return store.port


@asynccontextmanager
async def _namespace_at(url: str) -> AsyncIterator[Namespace]:
    keys = Keys(NAMESPACE)
    client = StoreClient(StoreUrl.parse(url), slot_key=keys.meta, timeout_ms=2_000)
    await client.open()
    try:
        yield Namespace(client, keys, ScriptSet.load())
    finally:
        await client.close()


class _Run:
    def __init__(self, stores: Stores, workers: list[Running], fleet: ChurningFleet, namespace: Namespace) -> None:
        self.stores = stores
        self.workers = workers
        self.fleet = fleet
        self.namespace = namespace
        self.leases: dict[str, str] = {}
        """Token → the lease that it was given to."""
        self.violations: list[str] = []

    async def observe_leases(self) -> None:
        while True:
            for lease in await asyncio.to_thread(self.stores.leases):
                token = lease.partition(":")[0]
                if self.leases.setdefault(token, lease) != lease:
                    self.violations.append(f"token {token} was used twice: {self.leases[token]} and {lease}")
            await asyncio.sleep(0.05)

    async def fail_over(self, rng: random.Random) -> Failover:
        """Starts over if a busy machine left the replica alone for so long that Sentinel would not promote it."""
        while (failover := await self._try_to_fail_over(rng)) is None:
            pass
        return failover

    async def _try_to_fail_over(self, rng: random.Random) -> Failover | None:
        stores, fleet = self.stores, self.fleet
        await asyncio.sleep(rng.uniform(0.2, 2.0))
        await asyncio.to_thread(stores.cut_off_replica)
        cut = time.monotonic()
        suspends = rng.random() < 0.3
        unreplicated_s = rng.uniform(LEASE_MS / 1000 + 0.5, 3.0) if suspends else rng.uniform(0.1, 3.0)
        suspended = await self._suspend_leader() if suspends else None
        await asyncio.sleep(max(cut + unreplicated_s - time.monotonic(), 0))
        await self._check_removals()
        kept = await asyncio.to_thread(stores.newest_version, stores.replica)
        seen = await asyncio.to_thread(stores.newest_version, stores.primary)
        killed = time.monotonic()
        if killed - cut > PROMOTABLE_S:
            if suspended is not None:
                self._continue(suspended)
            await asyncio.to_thread(stores.connect_replica)
            await until(partial(_is_true, stores.is_whole), every_s=0.1)
            return None
        await asyncio.to_thread(stores.fail_primary)
        lost = fleet.lost_writes(cut, killed)
        if suspended is not None:
            self._continue(suspended)
        await until(partial(_is_true, stores.is_promoted), every_s=0.05)
        await asyncio.gather(*(until(partial(_has_written, worker, killed), every_s=0.05) for worker in self.workers))
        writes_work_s = time.monotonic() - killed
        await until(partial(_is_reached, self._is_repaired), every_s=0.1)
        repaired_s = time.monotonic() - killed
        await asyncio.to_thread(stores.return_as_replica)
        # Digests can be compared only at one version, so nothing changes until they have been.
        fleet.churns.clear()
        await until(partial(_is_reached, self._have_equal_digests), every_s=0.1)
        digests_equal_s = time.monotonic() - killed
        fleet.churns.set()
        await self._check_removals()
        await until(partial(_is_true, stores.is_whole), every_s=0.1)
        return Failover(unreplicated_s, suspends, len(lost), seen - kept, writes_work_s, repaired_s, digests_equal_s)

    async def _suspend_leader(self) -> int | None:
        statuses = await asyncio.gather(*map(_status_of, self.workers))
        leaders = [number for number, status in enumerate(statuses) if status["worker"] == _leader_in(status)]
        if not leaders:
            return None
        (number,) = leaders
        self.fleet.suspended.add(number)
        os.kill(self.workers[number].process.pid, signal.SIGSTOP)
        return number

    def _continue(self, number: int) -> None:
        os.kill(self.workers[number].process.pid, signal.SIGCONT)
        self.fleet.suspended.discard(number)

    async def _is_repaired(self) -> bool:
        """Whether the promoted store has everything that was acknowledged to the brokers that live."""
        expected = {broker.name: broker.acknowledged for broker in self.fleet.living.values()}
        table, _ = await load(self.namespace)
        return all(set(topics) <= table.queues_of(name).keys() for name, topics in expected.items())

    async def _have_equal_digests(self) -> bool:
        """Whether all workers are at one version, and have the digest of the store's table at that version."""
        table, position = await load(self.namespace)
        found = {(position.history, position.version): {table.digest}}
        for status in await asyncio.gather(*map(_status_of, self.workers)):
            found.setdefault((status["history"], status["version"]), set()).add(status["digest"])
        for at, digests in found.items():
            if len(digests) > 1:
                self.violations.append(f"different digests at {at}: {digests}")
        return len(found) == 1

    async def _check_removals(self) -> None:
        """No broker that lives may be removed, for whatever cause."""
        newest = (await read_history_head(self.namespace)).version
        changes = await changes_between(self.namespace, max(newest - 1000, 0), 1000)
        # Read last: a broker that leaves does not return.
        living = self.fleet.living
        for change in changes:
            if change.kind == "broker-removed" and change.fields["broker"] in living:
                self.violations.append(f"removed although it lives: {change.fields}")

    async def is_gone(self) -> bool:
        """Whether brokers that left are in no worker's table."""
        names = set(self.fleet.living)
        listed = [await asyncio.to_thread(worker.get, "/v1/brokers?limit=1000") for worker in self.workers]
        return all({broker["name"] for broker in answer.json()["brokers"]} <= names for answer in listed)


async def _is_reached(condition: Callable[[], Awaitable[bool]]) -> bool:
    """A sentinel may name the former primary a moment longer than those that the workers asked."""
    try:
        return await condition()
    except StoreUnavailableError:
        return False


async def _is_true(condition: Callable[[], bool]) -> bool:
    """A server that changes its role resets its connections: then the condition is asked again."""
    try:
        return await asyncio.to_thread(condition)
    except redis.RedisError:
        return False


async def _status_of(worker: Running) -> dict[str, Any]:
    answer = await asyncio.to_thread(worker.get, "/v1/status")
    return dict(answer.json())


def _leader_in(status: dict[str, Any]) -> str | None:
    return status["leader"]["worker"] if status["leader"] else None


async def _has_written(worker: Running, promoted: float) -> bool:
    answer = await asyncio.to_thread(worker.put, "/v1/kv/probe/at", {"value": f"{promoted}"})
    return bool(answer.status_code == 200)


async def _lost_tails(worker: Running) -> int:
    text = (await asyncio.to_thread(worker.get_admin, "/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith('routebook_feed_breaks_total{reason="lost_tail"}')]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)


async def run(*, count: int, seed: int, period_s: float = 3.0, folder: Path) -> Result:
    rng = random.Random(seed)
    result = Result(seed, period_s)
    async with AsyncExitStack() as stack:
        trio = await asyncio.to_thread(stack.enter_context, SentinelTrio())
        flags = ("--redis-url", trio.url, "--namespace", NAMESPACE, "--bind-address", "127.0.0.1")
        fast = ("--lease-ms", str(LEASE_MS), "--scan-not-active-broker-interval-ms", "500", "--hold-minimum", "1000")
        window = ("--recovery-window-ms", str(int(RECOVERY_PERIODS * period_s * 1000)))
        workers = []
        for _ in range(WORKERS):
            workers.append(Running("serve", *flags, *fast, *window, folder=folder))
            await asyncio.to_thread(stack.enter_context, workers[-1])
        namespace = await stack.enter_async_context(_namespace_at(trio.url))
        stores = Stores(trio)
        fleet = await stack.enter_async_context(ChurningFleet(workers, rng, period_s=period_s))
        one_run = _Run(stores, workers, fleet, namespace)
        leases = asyncio.create_task(one_run.observe_leases())
        for number in range(count):
            failover = await one_run.fail_over(rng)
            result.failovers.append(failover)
            print(f"{number + 1}/{count}: {failover}", flush=True)
        fleet.churns.clear()
        await until(one_run.is_gone)
        leases.cancel()
        await asyncio.gather(leases, return_exceptions=True)
        result.violations = one_run.violations + fleet.observed.violations
        result.lookups = dict(fleet.observed.lookups)
        result.tokens = len(one_run.leases)
        result.lost_tails_noticed = sum([await _lost_tails(worker) for worker in workers])
        result.slowest_write_s = fleet.observed.slowest_write_s
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description="Failovers that lose acknowledged writes.")
    parser.add_argument("--count", type=int, default=30, help="number of failovers")
    parser.add_argument("--seed", type=int, default=1, help="decides all times")
    parser.add_argument("--period", type=float, default=3.0, help="seconds between two registrations of a broker")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(
            run(count=arguments.count, seed=arguments.seed, period_s=arguments.period, folder=Path(folder))
        )
    for name, value in result.figures().items():
        print(f"{name}: {value}")
    for violation in result.violations[:20]:
        print(violation)
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
