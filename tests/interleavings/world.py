"""One namespace of a real store, with a broker, its rivals, three workers and two leaders that take steps in any order.

Each step is one script, as the service runs it, or one event outside the store: a broker dies, a connection ends, a
worker dials. What a step decides, a later one carries out, and anything may happen in between. After each step, the
invariants of `docs/reliability.md` are checked in the store.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from routebook.model.broker import DataVersion, QueueData, Registration
from routebook.replica.load import in_steps
from routebook.store.administration import delete_topic
from routebook.store.namespace import Namespace, Status
from routebook.store.recovery import begin_history
from routebook.store.registration import QueueDifference, register_broker, touch_broker
from routebook.store.removal import DueInstance, Removal, expire_brokers, scan_deadlines, unregister_brokers
from routebook.store.sessions import (
    EndedSession,
    LostConnection,
    SessionMark,
    adopt_lost_connections,
    close_sessions,
    resolve_lost_connections,
)
from routebook.store.workers import Lease, acquire_lease, open_namespace, remove_worker, renew_worker_lease
from tests.support.scripts import CALLER, NO_BRAKE

TOPICS: Final = {"orders": QueueData(), "bills": QueueData(4, 4)}
TIMEOUT_MS: Final = 120_000

CHECK: Final = """
-- Returns what is inconsistent: a registration must be visible as a whole or not at all (I3).
local t = function(name) return 'rb:{' .. KEYS[1]:match('{(.-)}') .. '}:' .. name end
local wrong = {}
local function check(ok, what) if not ok then wrong[#wrong + 1] = what end end
local seats = redis.call('HGETALL', t('broker:' .. ARGV[1]))
local listed = redis.call('SISMEMBER', t('cluster:east'), ARGV[1]) == 1
local exists, found, address = #seats > 0, 0, ''
for i = 1, #seats, 2 do
  if seats[i]:match('^addr:') then
    found, address = found + 1, seats[i + 1]
    check(redis.call('EXISTS', t('instance:east/' .. seats[i + 1])) == 1, 'a seat without an instance')
    check(redis.call('ZSCORE', t('deadlines'), 'east/' .. seats[i + 1]), 'a seat without a deadline')
  end
end
check(exists == listed, 'the group and its cluster disagree')
check(exists == (found > 0), 'a group without a seat')
check(exists or redis.call('EXISTS', t('queues:' .. ARGV[1])) == 0, 'queues without a group')
for _, name in ipairs(redis.call('ZRANGE', t('deadlines'), 0, -1)) do
  check(redis.call('EXISTS', t('instance:' .. name)) == 1, 'a deadline without an instance')
end
for _, name in ipairs(redis.call('HKEYS', t('lost'))) do
  check(redis.call('EXISTS', t('instance:' .. name)) == 1, 'a loss without an instance')
end
local version = tonumber(redis.call('HGET', t('meta'), 'version') or '0')
check(redis.call('XLEN', t('changes')) == version, 'versions with holes')
return { table.concat(wrong, '; '), address, redis.call('HLEN', t('queues:' .. ARGV[1])) }
"""


class BrokenInvariantError(AssertionError):
    pass


@dataclass
class Broker:
    """A broker process. `worker`: the one that it is connected to."""

    registration: Registration
    worker: str | None = None
    is_alive: bool = True
    acknowledged: bool = False
    """It lives, and its last registration was accepted, so it must be in the table."""
    incarnation: str = ""

    @property
    def address(self) -> str:
        return self.registration.address


@dataclass
class World:
    namespace: Namespace
    history: str = ""
    broker: Broker = field(default_factory=lambda: Broker(registration_at("127.0.0.1:10911", state=1)))
    rival: Broker = field(default_factory=lambda: Broker(registration_at("127.0.0.2:10911", state=2)))
    """Another address for the same seat, with a higher state version."""
    leases: dict[str, Lease] = field(default_factory=dict)
    stamps: dict[str, int] = field(default_factory=dict)
    closing: dict[str, list[EndedSession]] = field(default_factory=dict)
    losses: dict[str, list[LostConnection]] = field(default_factory=dict)
    verdicts: dict[str, list[LostConnection]] = field(default_factory=dict)
    due: dict[str, tuple[DueInstance, ...]] = field(default_factory=dict)
    token: int = 0
    topics_deleted: bool = False
    removals: int = 0
    """Removals that took effect, so that a test can see that both sides win."""

    async def begin(self) -> None:
        """The broker registered through worker 1, has been silent beyond its deadline, and worker 1 leads."""
        self.history = (await open_namespace(self.namespace)).history
        for worker in ("w1", "w2"):
            await renew_worker_lease(self.namespace, worker, 600_000, "{}", caller=CALLER)
        await self._register(self.broker, "w1")
        await self.make_overdue()
        await self._lead("w1")

    async def make_overdue(self) -> None:
        name = self.broker.registration.instance_name
        await self.namespace.client.call("ZADD", self.namespace.keys.table("deadlines"), "XX", 1, name)
        self.broker.acknowledged = False

    # -- brokers

    async def _register(self, broker: Broker, worker: str) -> None:
        """A registration over a connection to this worker: touch_broker, and register_broker if that is not enough."""
        if not broker.is_alive:
            return
        if broker.worker not in (None, worker):
            self._end_connection(broker)
        broker.worker = worker
        self.stamps[worker] = self.stamps.get(worker, 0) + 1
        mark = SessionMark(worker, self.stamps[worker])
        reply = await touch_broker(self.namespace, broker.registration, caller=CALLER, digest=DIGEST, session=mark)
        while reply.status is Status.STALE:
            self.history = (await open_namespace(self.namespace)).history
            keys = self.namespace.keys
            known, revision = await self.namespace.client.pipeline(
                [("HKEYS", keys.of("queues", "broker-a")), ("HGET", keys.of("broker", "broker-a"), "rev")]
            )
            missing = {topic: data for topic, data in TOPICS.items() if topic.encode() not in known}
            reply = await register_broker(
                self.namespace,
                broker.registration,
                QueueDifference(new=missing),
                caller=CALLER,
                timeout_ms=TIMEOUT_MS,
                digest=DIGEST,
                base=(self.history, int(revision or 0)),
                replaces_known=True,
                run_steps=in_steps,
                session=mark,
            )
        broker.acknowledged = reply.status in (Status.DONE, Status.UNCHANGED)
        if broker.acknowledged:
            broker.incarnation = reply.incarnation
            other = self.rival if broker is self.broker else self.broker
            other.acknowledged = False  # there is one seat
            self.topics_deleted = False

    def _end_connection(self, broker: Broker) -> None:
        if broker.worker:
            name = broker.registration.instance_name
            ended = EndedSession(name, broker.incarnation, self.stamps[broker.worker], ago_ms=0)
            self.closing.setdefault(broker.worker, []).append(ended)
        broker.worker = None

    async def heartbeat_to_w1(self) -> None:
        await self._register(self.broker, "w1")

    async def heartbeat_to_w2(self) -> None:
        await self._register(self.broker, "w2")

    async def rival_registers(self) -> None:
        await self._register(self.rival, "w2")

    async def broker_dies(self) -> None:
        self._end_connection(self.broker)
        self.broker.is_alive = self.broker.acknowledged = False

    async def broker_starts(self) -> None:
        self.broker.is_alive = True

    async def connection_breaks(self) -> None:
        self._end_connection(self.broker)

    async def broker_unregisters(self) -> None:
        """An orderly stop: the response comes before the process ends. Not counted as a removal, since it happens in
        every order.
        """
        one = self.broker.registration
        removal = Removal(one.cluster, one.broker, 0, one.address, self.broker.incarnation)
        await unregister_brokers(self.namespace, [(removal, CALLER)], NO_BRAKE)
        await self.broker_dies()

    async def operator_deletes_topic(self) -> None:
        await delete_topic(self.namespace, "orders", caller=CALLER)
        self.topics_deleted = True

    # -- lost connections

    async def close(self, worker: str) -> None:
        for ended in self.closing.pop(worker, []):
            for _, loss in await close_sessions(self.namespace, worker, [ended]):
                if loss:
                    self.losses.setdefault(worker, []).append(loss)

    async def dial(self, worker: str) -> None:
        for loss in self.losses.pop(worker, []):
            broker = next(one for one in (self.broker, self.rival) if one.address == loss.address)
            if broker.is_alive:
                await resolve_lost_connections(self.namespace, [loss])
            else:
                self.verdicts.setdefault(worker, []).append(loss)

    async def remove_lost(self, worker: str) -> None:
        for loss in self.verdicts.pop(worker, []):
            self._count(await unregister_brokers(self.namespace, [(loss.removal(), CALLER)], NO_BRAKE))

    # -- leaders

    async def _lead(self, worker: str) -> None:
        is_mine, lease = await acquire_lease(self.namespace, worker, 600_000)
        if is_mine:
            if lease.token <= self.token:
                raise BrokenInvariantError(f"I7: token {lease.token} after {self.token}")
            self.leases[worker], self.token = lease, lease.token

    async def scan(self, worker: str) -> None:
        if lease := self.leases.get(worker):
            found = await scan_deadlines(self.namespace, lease.whole, caller=CALLER, limit=10, brake=NO_BRAKE)
            self._check_fence(lease, found.status)
            self.due[worker] = found.listed

    async def expire(self, worker: str) -> None:
        lease, due = self.leases.get(worker), self.due.pop(worker, ())
        if lease and due:
            reply = await expire_brokers(self.namespace, lease.whole, due, caller=CALLER)
            self._check_fence(lease, reply.status)
            self.removals += len(reply.removed)

    def _check_fence(self, lease: Lease, status: Status) -> None:
        if lease.token != self.token and status is not Status.FENCED:
            raise BrokenInvariantError(f"I7: {status.name} for the leader with token {lease.token}, not {self.token}")

    async def w2_takes_over(self) -> None:
        """The lease of the leader ends, and worker 2 becomes the leader."""
        await self.namespace.client.call("DEL", self.namespace.keys.table("leader"))
        await self._lead("w2")

    async def w1_is_removed(self) -> None:
        """Its lease has ended: the leader removes its sessions, and adopts its lost connections."""
        leader = self.leases.get("w2")
        if not leader or leader.token != self.token:
            return
        await self.namespace.client.call("ZADD", self.namespace.keys.table("workers"), "XX", 1, "w1")
        await remove_worker(self.namespace, "w1", lease=leader.whole, caller=CALLER)
        _, adopted = await adopt_lost_connections(self.namespace, leader.whole, "w2", caller=CALLER)
        self.losses.setdefault("w2", []).extend(adopted)

    # -- the store

    async def store_loses_all(self) -> None:
        keys = await self.namespace.client.call("KEYS", self.namespace.keys.table("*"))
        await self.namespace.client.call("DEL", *keys)
        self.broker.acknowledged = self.rival.acknowledged = False

    async def workers_notice(self) -> None:
        """They open the namespace again, and the leases are renewed."""
        self.history = (await open_namespace(self.namespace)).history
        for worker in ("w1", "w2"):
            await renew_worker_lease(self.namespace, worker, 600_000, "{}", caller=CALLER)

    async def history_is_renamed(self) -> None:
        """As after a failover that lost changes."""
        await begin_history(self.namespace, history=self.history)
        self.history = (await open_namespace(self.namespace)).history

    # -- invariants

    def _count(self, reply: object) -> None:
        self.removals += getattr(reply, "statuses", ()).count(Status.DONE)

    async def check(self) -> None:
        wrong, address, queues = await self.namespace.client.call(
            "EVAL", CHECK, 1, self.namespace.keys.meta, "broker-a"
        )
        if wrong:
            raise BrokenInvariantError(f"I3: {wrong.decode()}")
        for broker in (self.broker, self.rival):
            if broker.acknowledged and address.decode() != broker.address:
                raise BrokenInvariantError(f"I1: {broker.address} is registered, and its seat has {address.decode()!r}")
            if broker.acknowledged and queues != len(TOPICS) - self.topics_deleted:
                raise BrokenInvariantError(f"I9: {broker.address} registered {len(TOPICS)} topics; there are {queues}")


DIGEST: Final = "d" * 32


def registration_at(address: str, *, state: int) -> Registration:
    return Registration(
        cluster="east",
        broker="broker-a",
        broker_id=0,
        address=address,
        topics=TOPICS,
        full=True,
        data_version=DataVersion(state, 1, 1),
    )


Step = Callable[[World], Awaitable[None]]


def of(method: Callable[[World, str], Awaitable[None]], worker: str) -> Step:
    async def step(world: World) -> None:
        await method(world, worker)

    step.__name__ = f"{method.__name__}({worker})"
    return step


HEARTBEAT_1, HEARTBEAT_2 = World.heartbeat_to_w1, World.heartbeat_to_w2
LOSS_AT_1 = (of(World.close, "w1"), of(World.dial, "w1"), of(World.remove_lost, "w1"))
LOSS_AT_2 = (of(World.close, "w2"), of(World.dial, "w2"), of(World.remove_lost, "w2"))
EXPIRY_BY_1 = (of(World.scan, "w1"), of(World.expire, "w1"))
EXPIRY_BY_2 = (World.w2_takes_over, of(World.scan, "w2"), of(World.expire, "w2"))

SCENARIOS: Final[dict[str, tuple[tuple[Step, ...], ...]]] = {
    "a broker flaps": (
        (World.broker_dies, World.broker_starts, HEARTBEAT_2, World.connection_breaks, HEARTBEAT_1),
        LOSS_AT_1,
        LOSS_AT_2,
    ),
    "expiry, takeover and session close": (
        (World.connection_breaks, HEARTBEAT_2, HEARTBEAT_2),
        EXPIRY_BY_1,
        LOSS_AT_1,
        EXPIRY_BY_2,
    ),
    "an orderly restart": (
        (World.broker_unregisters, World.broker_starts, HEARTBEAT_2),
        EXPIRY_BY_1,
        LOSS_AT_1,
        EXPIRY_BY_2,
    ),
    "a worker dies": (
        (World.broker_dies, World.broker_starts, HEARTBEAT_2, World.connection_breaks),
        LOSS_AT_1,
        (World.w2_takes_over, World.w1_is_removed, of(World.dial, "w2"), of(World.remove_lost, "w2")),
    ),
    "two brokers for one seat": (
        (World.rival_registers, World.rival_registers),
        (HEARTBEAT_1, World.broker_dies),
        EXPIRY_BY_1,
        LOSS_AT_1,
    ),
    "a topic is deleted": (
        (World.operator_deletes_topic, World.operator_deletes_topic),
        (HEARTBEAT_1, HEARTBEAT_2, HEARTBEAT_1),
        EXPIRY_BY_1,
        (of(World.close, "w1"), of(World.close, "w2")),
    ),
    "the store is emptied": (
        (World.store_loses_all, World.workers_notice),
        (World.connection_breaks, HEARTBEAT_2, HEARTBEAT_2),
        EXPIRY_BY_1,
        LOSS_AT_1,
    ),
    "the history is renamed": (
        (World.history_is_renamed,),
        (World.broker_dies, World.broker_starts, HEARTBEAT_2),
        EXPIRY_BY_2,
        LOSS_AT_1,
    ),
}
