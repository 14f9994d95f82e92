"""After each operation of any history, the scripts have held and removed what the reference brake held and removed."""

import asyncio
from dataclasses import dataclass
from typing import Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from routebook.model.broker import Registration
from routebook.store.connection.client import StoreClient
from routebook.store.namespace import Namespace, Status
from routebook.store.registration import heartbeat_broker
from routebook.store.removal import (
    Brake,
    Cause,
    Removal,
    expire_brokers,
    hold_expiry,
    release_expiry,
    scan_deadlines,
    unregister_brokers,
)
from routebook.store.workers import Lease, acquire_lease
from tests.properties.namespaces import fresh_namespace
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.brake import Outcome, ReferenceBrake
from tests.reference.build import registration
from tests.support.scripts import make_old

BRAKE = Brake(percent=30, minimum=3, window_ms=3_600_000)
NAMES = tuple(f"broker-{number}" for number in range(10))
ESTABLISHED = NAMES[:6]
CAUSES: dict[str, Cause] = {
    "loses its connection": "connection-lost",
    "unregisters": "unregistered",
    "is removed by an operator": "operator",
}
OUTCOMES: dict[Status, Outcome] = {Status.DONE: "removed", Status.HELD: "held", Status.UNKNOWN: "unknown"}
LOST_MS = 1
What = Literal[
    "registers",
    "sends heartbeats for a while",
    "sends a heartbeat",
    "falls silent",
    "loses its connection",
    "unregisters",
    "is removed by an operator",
]


@dataclass(frozen=True)
class Step:
    what: What
    name: str


steps = st.builds(
    Step,
    st.sampled_from(
        ["registers", "sends heartbeats for a while", "sends a heartbeat", "falls silent", "falls silent", *CAUSES]
    ),
    st.sampled_from(NAMES),
)
histories = st.lists(
    st.one_of(steps, steps, steps, steps, st.sampled_from(["scan", "scan", "release", "window passes"])),
    min_size=10,
    max_size=40,
)


class Compared:
    def __init__(self, namespace: Namespace, lease: Lease) -> None:
        self.namespace = namespace
        self.worker = PlainWorker(namespace)
        self.lease = lease.whole
        self.reference = ReferenceBrake(BRAKE.percent, BRAKE.minimum)

    async def begin(self) -> None:
        """A fleet that has run for long, and some brokers that have just registered."""
        await self.worker.register(_broker("always-there"))
        self.reference.present.add("always-there")
        for name in ESTABLISHED:
            await self.worker.register(_broker(name))
            self.reference.register(name)
            self.reference.establish(name)
        await make_old(self.namespace)
        for name in NAMES[len(ESTABLISHED) :]:
            await self.worker.register(_broker(name))
            self.reference.register(name)

    async def take(self, step: Step | str) -> None:
        match step:
            case Step(what="registers", name=name):
                await self.worker.register(_broker(name))
                self.reference.register(name)
            case Step(what="sends heartbeats for a while", name=name):
                await self._call("ZADD", "new-instances", "XX", 1, _broker(name).instance_name)
                await self._heartbeat(name)
                self.reference.establish(name)
            case Step(what="sends a heartbeat", name=name):
                await self._heartbeat(name)
                self.reference.heartbeat(name)
            case Step(what="falls silent", name=name):
                await self._call("ZADD", "deadlines", "XX", await self._now_ms(), _broker(name).instance_name)
                self.reference.fall_silent(name)
            case Step(what=what, name=name):
                await self._remove(what, name)
            case "scan":
                assert await self._scan() == self.reference.scan()
            case "release":
                await release_expiry(self.namespace, caller=CALLER, expire_due=True)
                self.reference.release()
            case "window passes":
                for member in await self._call("ZRANGE", "removals", 0, -1):
                    await self._call("ZADD", "removals", 1, member)
                self.reference.window_passes()
        await asyncio.sleep(0.002)  # so that times in milliseconds differ
        await self._compare()

    async def _remove(self, what: str, name: str) -> None:
        cause = CAUSES[what]
        if cause == "connection-lost":
            await self._lose_connection(_broker(name).instance_name)
        removal = Removal("east", name, 0, _broker(name).address, cause=cause, lost_ms=LOST_MS)
        reply = await unregister_brokers(self.namespace, [(removal, CALLER)], BRAKE)
        remove = self.reference.remove_by_operator if cause == "operator" else self.reference.remove
        was_in_force = self.reference.in_force
        assert OUTCOMES[reply.statuses[0]] == remove(name)
        assert reply.hold_began == (self.reference.in_force and not was_in_force)

    async def _scan(self) -> set[str]:
        """As the leader does it."""
        scan = await scan_deadlines(self.namespace, self.lease, caller=CALLER, limit=100, brake=BRAKE)
        if scan.has_to_hold:
            await hold_expiry(self.namespace, self.lease, [], caller=CALLER)
        elif scan.held_since_ms is not None:
            await release_expiry(self.namespace, caller=CALLER, expire_due=False, lease=self.lease)
        may_expire = [
            one for one in scan.listed if not scan.has_to_hold or one.deadline <= scan.released_to or not one.counts
        ]
        reply = await expire_brokers(self.namespace, self.lease, may_expire, caller=CALLER)
        return {NAMES[_number(name)] for name in reply.removed}

    async def _compare(self) -> None:
        present = await self._call("ZRANGE", "deadlines", 0, -1)
        assert len(present) == len(self.reference.present)
        held_since = await self.namespace.client.call("HGET", self.namespace.keys.table("expiry"), "held_since_ms")
        assert (held_since is not None) == self.reference.in_force
        new = await self._call("ZRANGE", "new-instances", 0, -1)
        assert {NAMES[_number(one.decode())] for one in new} == self.reference.new

    async def _lose_connection(self, instance_name: str) -> None:
        """As `close_sessions` writes it down: a verdict counts only while its loss is pending."""
        incarnation = await self.namespace.client.call("HGET", self.namespace.keys.of("instance", instance_name), "inc")
        if incarnation:
            await self._call("HSET", "lost", instance_name, f"{incarnation.decode()} {LOST_MS} worker-1")

    async def _heartbeat(self, name: str) -> None:
        await heartbeat_broker(self.namespace, "east", name, 0, caller=CALLER)

    async def _now_ms(self) -> int:
        seconds, microseconds = await self.namespace.client.call("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def _call(self, command: str, table: str, *arguments: str | int | bytes) -> list[bytes]:
        found: list[bytes] = await self.namespace.client.call(command, self.namespace.keys.table(table), *arguments)
        return found


def _broker(name: str) -> Registration:
    number = NAMES.index(name) if name in NAMES else 99
    return registration(f"127.0.1.{number}:10911", broker=name, timeout_ms=3_600_000)


def _number(instance_name: str) -> int:
    return int(instance_name.rpartition(":")[0].rpartition(".")[2])


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=histories)
async def test_the_scripts_hold_what_the_reference_brake_holds(client: StoreClient, history: list[Step | str]) -> None:
    async with fresh_namespace(client) as namespace:
        _, lease = await acquire_lease(namespace, "worker-1", 600_000)
        compared = Compared(namespace, lease)
        await compared.begin()
        for step in history:
            await compared.take(step)
