"""The invariants I1 to I9, named as in the list of faults, checked while a plan runs and after its calm.

What the service promises has conditions, and each check states them: a broker may be removed when it was silent for its
timeout, or when its connection was lost and its address could not be dialled, and so on. `Removals` has these reasons.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from routebook.errors import NotFoundError, RoutebookError, StoreError
from routebook.store.connection.link import Word
from routebook.store.namespace import Status
from tests.simulation.fleet import (
    GRACE_S,
    NAMESPACE,
    RECOVERY_WINDOW_S,
    TIMEOUT_S,
    Ack,
    Broker,
    Worker,
    topics_of,
)
from tests.simulation.lua_store import MemoryStore
from tests.simulation.memory_values import SortedSet, Stream
from tests.simulation.plan import Event

if TYPE_CHECKING:
    from tests.simulation.network import StoreServer
    from tests.simulation.world import World

PREFIX: Final = f"rb:{{{NAMESPACE}}}:".encode()
KNOWN_AFTER_S: Final = 5.0
"""After this time, every worker either knows a topic or is out of touch with the store."""
PAUSE_COUNTS_S: Final = 6.0
"""Outages from this length on stop the deadline clock. The scripts need 5 s without a renewal."""
DISTURBED_S: Final = GRACE_S + 6.0
"""How long a cut between a broker and a worker may still decide about the broker: a grace, a dial, and delays."""
LATE_REQUEST_S: Final = 5.0
"""A request to unregister is carried out within this time, unless its worker is suspended meanwhile."""
LEASE_ARGUMENT: Final = {
    "scan_deadlines": 1,
    "expire_brokers": 1,
    "hold_expiry": 1,
    "release_expiry": 2,
    "adopt_lost_connections": 1,
    "remove_empty_groups": 1,
    "remove_worker": 1,
    "begin_baseline": 1,
    "append_baseline": 1,
    "end_baseline": 1,
}
"""Scripts of the leader → position of the lease among their arguments."""


HEARTBEATS: Final = ("touch_broker", "register_broker")
ADDRESS_ARGUMENT: Final = 4
"""Position of the address among the arguments of these scripts."""
FORMER_ADDRESS_S: Final = 10.0
"""After a loss of writes: the longest outage of a failover, and three registrations."""


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"At {self.at:5.1f} s {self.invariant} is violated: {self.text}"


@dataclass(frozen=True, slots=True)
class Removal:
    at: float
    version: int


NEVER: Final = Removal(-100.0, 0)


@dataclass(frozen=True, slots=True)
class Result:
    violation: Violation | None
    trace: int
    """Equal for equal runs: a checksum of every script that ran, with its time."""
    steps: int
    registrations: int
    lookups: int
    answered: int


class Checker:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._names = {world.scripts[name].sha1: name for name in world.scripts.names}
        self._names |= {world.scripts[name].source: name for name in world.scripts.names}
        self._violation: Violation | None = None
        self._trace = 0
        self._registrations = self._lookups = self._answered = 0
        self._lost_writes_at: float | None = None
        self._missing_since: dict[str, float] = {}
        """Broker → since when the store has lost all its registrations. Later losses do not begin another window."""
        self._split_until = 0.0
        self._known_since: dict[str, float] = {}
        """Topic → since when the store has had it, and has lost nothing."""
        self._shown_at_loss: dict[str, dict[str, float]] = {}
        """Start of a worker → topics that it showed when the store lost writes → when the store lost them."""
        self._disturbed_until: dict[tuple[str, str], float] = {}
        """Host of a broker, worker → how long a cut between the two may still decide about the broker."""
        self._last_resume = -100.0
        """When a worker that was suspended last continued."""
        self._heartbeats: dict[tuple[StoreServer, str], float] = {}
        """Server, address → when the server last accepted a heartbeat that it has not lost."""
        self._reached: dict[tuple[StoreServer, str], float] = {}
        """The same with the heartbeats that it has lost."""
        self._removals: dict[str, Removal] = {}
        """Address → its last removal that a server recorded."""
        self._deleted_topics: set[str] = set()
        self._highest_token = 0
        self._clock_went_back = False
        self._leases: dict[StoreServer, bytes] = {}
        """Server → the lease granted last."""
        self._last_entry: dict[StoreServer, tuple[int, int]] = {}
        self._shown: dict[str, dict[str, str]] = {}
        """Start of a worker → address → group that readers are shown."""
        self._positions: dict[str, tuple[str, str, int]] = {}
        self._outages: list[list[float]] = []
        self._is_out = False

    def violated(self, invariant: str, text: str) -> None:
        """The first violation ends the run."""
        if self._violation is None:
            self._violation = Violation(invariant, self._world.loop.now, text)
        self._world.loop.stopped = True

    def result(self, steps: int) -> Result:
        return Result(self._violation, self._trace, steps, self._registrations, self._lookups, self._answered)

    # -- what happens

    def event(self, event: Event, worker: Worker | None, broker: Broker | None) -> None:
        if broker is not None and event.kind in ("cut-broker", "isolate-broker"):
            until = event.at + event.values["seconds"] + DISTURBED_S
            for place in [worker.place] if worker else self._world.workers:
                pair = broker.host, place
                self._disturbed_until[pair] = max(until, self._disturbed_until.get(pair, 0.0))
        if event.kind == "suspend-worker":
            self._last_resume = max(self._last_resume, event.ends_at)
        if event.values.get("jump", 0.0) < 0:
            self._clock_went_back = True

    def topic_deleted(self, topic: str) -> None:
        self._deleted_topics.add(topic)

    def store_restored(self, source: "StoreServer", since: float) -> None:
        """The store has the state that this server had at that time."""
        kept = {address: at for (server, address), at in self._heartbeats.items() if server is source and at < since}
        target = self._world.store
        self._heartbeats = {key: at for key, at in self._heartbeats.items() if key[0] is not target}
        self._heartbeats |= {(target, address): at for address, at in kept.items()}

    def store_lost_writes(self, has_kept: Callable[[Ack], bool], until: float = 0.0) -> None:
        """`has_kept` says which registrations the store still has. `until`: it is split as long."""
        now = self._world.loop.now
        for worker in self._world.workers.values():
            if worker.process.is_alive and worker.replica.complete:
                groups = self._world.configs.keys() - self._removed_unseen(worker)
                before = self._shown_at_loss.get(worker.name, {})
                replica = worker.replica
                # One that is carried over since an earlier loss does not get another window.
                self._shown_at_loss[worker.name] = {
                    topic: now if topic in replica.table.queues_of(group) else before.get(topic, now)
                    for group in groups
                    for topic in replica.view.queues_of(group)
                }
        for broker in self._world.brokers.values():
            broker.acks_were_lost(has_kept, self._world.store)
            if broker.acked_at is None:
                self._missing_since.setdefault(broker.name, now)
        self._lost_writes_at = now
        self._split_until = max(self._split_until, until)
        self._known_since.clear()
        server = self._world.store
        lease = server.store.values.get(PREFIX + b"leader")
        self._leases[server] = lease if isinstance(lease, bytes) else b""
        self._last_entry[server] = _last_id(server.store)

    def _removed_unseen(self, worker: Worker) -> set[str]:
        """Groups whose masters were removed in a version that the worker has not read yet."""
        masters = (one for one in self._world.brokers.values() if one.broker_id == 0)
        version = worker.replica.version
        return {one.group for one in masters if self._removals.get(one.address, NEVER).version > version}

    def registered(self, broker: Broker, topics: Sequence[str]) -> None:
        self._registrations += 1
        self._missing_since.pop(broker.name, None)
        if broker.broker_id == 0 and self._world.loop.now >= self._split_until:
            for topic in topics:
                self._known_since.setdefault(topic, self._world.loop.now)

    def is_held(self) -> bool:
        return b"held_since_ms" in _hash(self._world.store.store, b"expiry")

    # -- after each script

    def script_ran(self, server: "StoreServer", words: Sequence[Word], reply: Any) -> None:
        name = self._names[str(words[1])]
        self._trace = zlib.crc32(f"{self._world.loop.now:.6f} {name} {type(reply)}".encode(), self._trace)
        if isinstance(reply, StoreError):
            if "NOSCRIPT" not in str(reply):
                self.violated("background", f"{name} failed: {reply}")
            return
        if name in HEARTBEATS and reply[0] in (Status.DONE, Status.UNCHANGED):
            key = server, str(words[4 + ADDRESS_ARGUMENT])
            self._heartbeats[key] = self._reached[key] = self._world.loop.now
        elif name == "renew_worker_lease" and server is self._world.store:
            self._is_out = False  # a worker serves, if only for a moment between two outages
        elif name == "acquire_lease" and reply[0] == Status.DONE:
            self._lease_granted(server, reply[2])
        elif name in LEASE_ARGUMENT and reply[0] != Status.FENCED:
            self._leader_wrote(server, name, str(words[4 + LEASE_ARGUMENT[name]]))
        if server.store.appended:
            self._read_new_entries(server)

    def _lease_granted(self, server: "StoreServer", lease: bytes) -> None:
        token = int(lease.split(b":")[0])
        # The larger of the last one plus one and the time: used before only if the store lost the last one, and its
        # clock was set back. Even then, scripts of the former leader are refused: they compare the whole lease.
        has_lost_counter = self._lost_writes_at is not None
        if token <= self._highest_token and not (has_lost_counter and self._clock_went_back):
            self.violated("I7", f"the fencing token {token} is not above {self._highest_token}.")
        self._highest_token = max(token, self._highest_token)
        self._leases[server] = lease

    def _leader_wrote(self, server: "StoreServer", name: str, lease: str) -> None:
        newest = self._leases.get(server, b"")
        if lease and lease.encode() != newest:
            self.violated("I7", f"{name} was accepted with the lease {lease}, after {newest.decode()} was granted.")

    def _read_new_entries(self, server: "StoreServer") -> None:
        stream = server.store.values.get(PREFIX + b"changes")
        if not isinstance(stream, Stream):
            return
        last, new = self._last_entry.get(server, (0, 0)), []
        for entry_id, fields in reversed(stream.entries):
            if entry_id <= last:
                break
            new.append((entry_id, fields[1]))
        self._last_entry[server] = stream.last
        for (ms, version), payload in reversed(new):
            if self._world.reader:
                self._world.reader.entry_written(ms, version, payload)
            if b'"broker-removed"' in payload:
                self._broker_removed(server, version, msgspec.json.decode(payload))

    # -- I1

    def _broker_removed(self, server: "StoreServer", version: int, change: dict[str, Any]) -> None:
        now, address, cause = self._world.loop.now, change["addr"], change["cause"]
        before = self._removals.get(address, NEVER)
        self._removals[address] = Removal(now, version)
        for topic in [topic for topic in self._known_since if _group_of(topic) == change["broker"]]:
            del self._known_since[topic]
        if change["group_removed"]:
            self._topics_removed(change["broker"])
        broker = self._healthy(address)
        if broker is None:
            return
        silence = self._silence(server, address)
        if silence >= TIMEOUT_S:
            return
        if cause == "unregistered":
            # Carried out late, after the broker has registered again. It had the same incarnation all the time, and
            # the request names the incarnation only.
            is_late = now < max(broker.unregistered_at, self._last_resume) + LATE_REQUEST_S
            if is_late and before.at < broker.unregistered_at:
                return
        if cause == "connection-lost":
            if self._reached.get((server, address), -1.0) < broker.started_at:
                return  # this side of a split store knows only the process before, whose connection was lost
            place = str(change["actor"]).partition(".")[0]
            if self._disturbed_until.get((broker.host, place), 0.0) >= now:
                return  # the worker that removed it could not dial it
            instance_name = f"{NAMESPACE}/{address}".encode()
            new = server.store.values.get(PREFIX + b"new-instances")
            if isinstance(new, SortedSet) and instance_name in new.scores:
                return  # not established: removed whatever listens there
        self.violated("I1", f"{broker.name} sends heartbeats, the last {silence:.1f} s ago, and is removed ({cause}).")

    def _topics_removed(self, broker_name: str) -> None:
        """A worker that shows the group at dead addresses alone has nothing to carry over. The group may live at a new
        address, if the registration from there was lost.
        """
        for worker in self._world.workers.values():
            group = worker.replica.view.groups.get(broker_name)
            if group is None or not any(map(self._healthy, group.addresses.values())):
                shown = self._shown_at_loss.get(worker.name, {})
                kept = {topic: at for topic, at in shown.items() if _group_of(topic) != broker_name}
                self._shown_at_loss[worker.name] = kept

    def _healthy(self, address: str) -> Broker | None:
        brokers = self._world.brokers.values()
        return next((one for one in brokers if one.address == address and one.is_healthy), None)

    def _silence(self, server: "StoreServer", address: str) -> float:
        """Seconds since the server accepted a heartbeat, without the outages of the service."""
        now, since = self._world.loop.now, self._heartbeats.get((server, address))
        if since is None:
            return inf
        outages = (max(0.0, end - max(begin, since)) for begin, end in self._outages if end - begin >= PAUSE_COUNTS_S)
        return now - since - sum(outages)

    def watch_service(self) -> None:
        """Called every few tenths of a second."""
        now = self._world.loop.now
        was_out, self._is_out = self._is_out, not any(map(self._can_write, self._world.workers.values()))
        if not self._is_out:
            return
        if was_out:
            self._outages[-1][1] = now
        else:
            self._outages.append([now, now])

    def _can_write(self, worker: Worker) -> bool:
        if not (worker.process.is_alive and worker.is_ready) or worker.process.is_suspended:
            return False
        is_cut = self._world.network.is_cut(worker.place, "store")
        return not is_cut and self._world.primary_of(worker.place).is_up

    # -- after each change of what readers are shown

    def view_changed(self, worker: Worker) -> None:
        if not worker.replica.complete:
            return
        position = worker.replica.position
        identity, history, version = self._positions.get(worker.name, ("", "", 0))
        is_same_history = (identity, history) == (position.identity, position.history)
        if is_same_history and position.version < version:
            self.violated("I6", f"{worker.name} went back from version {version} to {position.version}.")
        self._check_whole_registrations(worker)
        self._check_shown_seats(worker, version if is_same_history else None)
        self._positions[worker.name] = (position.identity, position.history, position.version)

    def _check_whole_registrations(self, worker: Worker) -> None:
        view = worker.replica.view
        for group in self._world.configs:
            if group not in view.groups:
                continue
            queues = {topic: data.read_queues for topic, data in view.queues_of(group).items()}
            # A registration merges: topics of a later configuration may be left.
            # The number of a deleted topic says nothing: it may be carried over from a lost registration.
            kept = set(topics_of(group, 1)) - self._deleted_topics
            config = max((queues.get(topic, 0) for topic in kept), default=0)
            wanted = set(topics_of(group, config)) - self._deleted_topics
            if config and any(queues.get(topic) != config for topic in wanted):
                self.violated("I3", f"{worker.name} shows half of a registration of {group}: {queues}.")

    def _check_shown_seats(self, worker: Worker, version: int | None) -> None:
        """`version`: what the worker showed before, in the same history."""
        shown = {
            address: group.name for group in worker.replica.view.groups.values() for address in group.addresses.values()
        }
        missing = self._shown.get(worker.name, {}).keys() - shown.keys()
        self._shown[worker.name] = shown
        for address in sorted(missing):
            broker = self._healthy(address)
            if broker is not None and not self._may_vanish(broker, worker, version):
                self.violated("I1", f"{worker.name} does not show {broker.name} any more, which sends heartbeats.")

    def _may_vanish(self, broker: Broker, worker: Worker, version: int | None) -> bool:
        """Its removal was recorded after what the worker showed before, and checked then. Or the store has lost it, and
        the recovery window is over. Or the store has lost its registration at a new address: it has the former address
        again, until the next registration.
        """
        now = self._world.loop.now
        group = worker.replica.view.groups.get(broker.group)
        has_former_address = group is not None and broker.broker_id in group.addresses
        if has_former_address and now - max(self._lost_writes_at or -100.0, self._split_until) < FORMER_ADDRESS_S:
            return True
        removal = self._removals.get(broker.address, NEVER)
        if now - removal.at < 30.0 and (version is None or version < removal.version):
            return True
        lost_at = self._missing_since.get(broker.name, self._lost_writes_at)
        if lost_at is not None and (broker.acked_at or 0.0) <= lost_at + 0.5:
            return now - lost_at >= 0.9 * RECOVERY_WINDOW_S
        return False

    # -- I5

    def looked_up(self, worker: Worker, broker: Broker, topic: str) -> None:
        self._lookups += 1
        try:
            worker.process.call(worker.registry.find_route, topic)
            self._answered += 1
        except NotFoundError:
            if self._is_known(worker, broker, topic):
                self.violated("I5", f"{worker.name} answers that {topic} does not exist, which {broker.name} has.")
        except RoutebookError:
            pass

    def _is_known(self, worker: Worker, broker: Broker, topic: str) -> bool:
        """Registered with the store long enough ago; or shown by this worker before the store lost its last writes, and
        the recovery window is not over.
        """
        now = self._world.loop.now
        if not broker.is_healthy or broker.broker_id != 0 or topic in self._deleted_topics:
            return False
        lost_at = self._shown_at_loss.get(worker.name, {}).get(topic, -inf)
        is_carried_over = self._removals.get(broker.address, NEVER).at < lost_at
        if is_carried_over and now - lost_at < 0.9 * RECOVERY_WINDOW_S and now >= self._split_until:
            return True
        known_since = self._known_since.get(topic)
        if known_since is None or now - known_since < KNOWN_AFTER_S or now < self._split_until + KNOWN_AFTER_S:
            return False
        return topic.encode() in _hash(self._world.store.store, f"queues:{broker.group}".encode())

    # -- after the calm

    def check_end(self) -> None:
        world, store = self._world, self._world.store.store
        workers = [worker for worker in world.workers.values() if worker.process.is_alive]
        if not all(worker.is_ready for worker in workers) or len(workers) != world.plan.workers:
            self.violated("I8", "not all workers serve after the calm.")
            return
        for worker in workers:
            self._check_settled(worker)
        for broker in world.brokers.values():
            self._check_broker(broker, workers)
        digests = {worker.name: worker.replica.table.digest for worker in workers}
        if len(set(digests.values())) > 1:
            self.violated("I4", f"the tables differ: {digests}.")
        self._check_store(store, workers)
        if world.reader:
            world.reader.check()

    def _check_settled(self, worker: Worker) -> None:
        replica, store = worker.replica, self._world.store.store
        version = int(_hash(store, b"meta").get(b"version", b"0"))
        if not replica.current or replica.is_recovering:
            state = "is recovering" if replica.is_recovering else "does not follow the store"
            self.violated("I4", f"{worker.name} {state} after the calm.")
        elif replica.version != version:
            self.violated("I4", f"{worker.name} shows version {replica.version}, and the store has {version}.")
        tasks = sum(not task.done() for task in worker.process.tasks)
        if tasks > 25:
            self.violated("I8", f"{worker.name} has {tasks} tasks after the calm.")

    def _check_broker(self, broker: Broker, workers: Sequence[Worker]) -> None:
        for worker in workers:
            view = worker.replica.view
            group = view.groups.get(broker.group)
            shown = group.addresses.get(broker.broker_id) if group else None
            if not broker.is_running:
                if shown is not None:
                    self.violated("I2", f"{worker.name} still shows {broker.name}, which is dead.")
            elif shown != broker.address:
                self.violated("I9", f"{worker.name} shows {shown} as {broker.name}, which is at {broker.address}.")
            elif broker.broker_id == 0:
                config = self._world.configs[broker.group]
                queues = {topic: data.read_queues for topic, data in view.queues_of(broker.group).items()}
                if any(queues.get(topic) != config for topic in topics_of(broker.group, config)):
                    self.violated("I9", f"{worker.name} shows {queues} for {broker.name}, which has {config} queues.")

    def _check_store(self, store: MemoryStore, workers: Sequence[Worker]) -> None:
        names = {worker.name.encode() for worker in workers}
        leases = store.values.get(PREFIX + b"workers")
        known = set(leases.scores) if isinstance(leases, SortedSet) else set()
        if known != names:
            self.violated("I8", f"the store has the workers {sorted(known)}, and {sorted(names)} run.")
        for key in store.values:
            if key.startswith(PREFIX + b"sessions:") and key[len(PREFIX) + 9 :] not in names:
                self.violated("I8", f"sessions of a worker are left: {key.decode()}.")
        for worker in workers:
            bound = {
                name.encode(): incarnation.encode()
                for name, incarnation in worker.registry.sessions._bindings.incarnations()
            }
            sessions = _hash(store, b"sessions:" + worker.name.encode())
            stored = {name: value.split(b" ")[1] for name, value in sessions.items()}
            if bound != stored:
                self.violated("I8", f"{worker.name} has the sessions {bound}, and the store has {stored}.")
        lost = _hash(store, b"lost")
        if lost:
            self.violated("I2", f"lost connections are never resolved: {lost}.")
        if self.is_held():
            self.violated("I2", "removals are still held.")


def _group_of(topic: str) -> str:
    """The group whose broker registers this topic; empty if an operator registered it."""
    return topic.removeprefix("new-").rpartition("-")[0]


def _hash(store: MemoryStore, name: bytes) -> dict[bytes, bytes]:
    value = store.values.get(PREFIX + name)
    return cast("dict[bytes, bytes]", value) if type(value) is dict else {}


def _last_id(store: MemoryStore) -> tuple[int, int]:
    stream = store.values.get(PREFIX + b"changes")
    return stream.last if isinstance(stream, Stream) else (0, 0)
