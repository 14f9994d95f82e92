"""Sessions: which instances are connected to this worker, so that the end of a connection can remove a broker.

Invariant: while a connection of this worker is bound to an instance, the store has a session of this worker for the
instance, or gets one as soon as it can be reached. The reverse may fail (a call timed out, but opened a session): then
a broker stays longer than it should, which is the safe side.

The script that registers or touches also opens the session, so both are one step; it does so only if the connection is
not bound to that incarnation yet. The session is closed when the last connection bound to the instance is closed.

Each opening has a number, the stamp, and the store keeps the highest one of a session. A closing names the last stamp
that this worker knows. So a closing that is overtaken by a newer opening closes nothing.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from weakref import WeakSet

from routebook.errors import ForbiddenError, InvalidInputError, LimitError, RefusedError, StoreError, StoreRefusalError
from routebook.model.names import Caller, join_instance_name
from routebook.observability.metrics import Metrics
from routebook.registry.removals import LostConnections, RemovalQueue, SessionShare, mark_retrieved
from routebook.replica.replica import Replica
from routebook.replica.table import Table
from routebook.settings.live import LiveSettings
from routebook.store.history import Change
from routebook.store.namespace import Namespace, Status
from routebook.store.removal import UNLESS_CONNECTED, Removal
from routebook.store.sessions import (
    NO_SESSION,
    EndedSession,
    LostConnection,
    OpenedSession,
    SessionMark,
    adopt_lost_connections,
    close_sessions,
    open_sessions,
    read_sessions,
)

_log = logging.getLogger(__name__)

SESSIONS_PER_CALL: Final = 200
RETRY_S: Final = 0.5
WATCH_S: Final = 0.5
MOVE_WITHIN_S: Final = 5.0
"""When the store is out of reach, connections are closed over this time: their brokers reconnect at once."""
MAX_RECENT_ENDS: Final = 100_000


_NOTHING_WRITTEN: Final = (RefusedError, InvalidInputError, LimitError, StoreRefusalError)


class SessionConnection(Protocol):
    """What sessions need of a port's connection. Hashable by identity, and weakly referenceable."""

    @property
    def peer(self) -> str: ...

    def close(self, reason: str) -> None:
        """Closes the connection. The port then calls `Sessions.connection_closed`, as after any other end."""


@dataclass(slots=True)
class Binding:
    """One instance and the connections of this worker over which it was registered or touched."""

    incarnation: str
    """Empty: unknown, because a call that may have opened a session failed."""
    stamp: int
    connections: set[SessionConnection] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class EndedBinding:
    """The last connection of this worker that was bound to the instance is closed."""

    instance_name: str
    incarnation: str
    stamp: int


class Bindings:
    """Which connections of this worker are bound to which instances, in which incarnation.

    An instance may have several connections, and a connection several instances (a broker container).
    """

    def __init__(self) -> None:
        self._by_instance: dict[str, Binding] = {}
        self._by_connection: dict[SessionConnection, set[str]] = {}

    def __len__(self) -> int:
        """Number of instances."""
        return len(self._by_instance)

    def incarnation(self, connection: SessionConnection | None, instance_name: str) -> str:
        """The incarnation of the instance that the connection is bound to; empty when there is none."""
        binding = self._by_instance.get(instance_name)
        return binding.incarnation if binding and connection in binding.connections else ""

    def carried(self) -> list[tuple[str, str]]:
        """Instance names, each with the address of the connection that carries it."""
        names = ((name, connection) for connection, names in self._by_connection.items() for name in names)
        return [(name, connection.peer) for name, connection in names]

    def incarnations(self) -> list[tuple[str, str]]:
        """Instance name and incarnation of all bindings whose incarnation is known."""
        return [(name, binding.incarnation) for name, binding in self._by_instance.items() if binding.incarnation]

    def has_connection(self, connection: SessionConnection) -> bool:
        return connection in self._by_connection

    def instances_of(self, connection: SessionConnection) -> frozenset[str]:
        """The names of the instances that the connection is bound to."""
        return frozenset(self._by_connection.get(connection, ()))

    def connections(self) -> list[SessionConnection]:
        return list(self._by_connection)

    def connections_of(self, instance_name: str, incarnation: str) -> list[SessionConnection]:
        binding = self._by_instance.get(instance_name)
        return list(binding.connections) if binding and binding.incarnation == incarnation else []

    def is_current(self, instance_name: str, incarnation: str, stamp: int) -> bool:
        """Whether the instance is still bound in this incarnation, without a newer opening."""
        binding = self._by_instance.get(instance_name)
        return binding is not None and (binding.incarnation, binding.stamp) == (incarnation, stamp)

    def is_bound(self, instance_name: str) -> bool:
        return instance_name in self._by_instance

    def set_stamp(self, instance_name: str, stamp: int) -> None:
        self._by_instance[instance_name].stamp = stamp

    def bind(self, connection: SessionConnection, instance_name: str, incarnation: str, stamp: int) -> None:
        """A new incarnation of the instance replaces the former one, together with all its connections."""
        binding = self._by_instance.get(instance_name)
        if binding is None:
            binding = self._by_instance[instance_name] = Binding(incarnation, stamp)
        elif incarnation and binding.incarnation != incarnation:
            for other in binding.connections - {connection}:
                self._remove_from_connection(other, instance_name)
            binding.incarnation, binding.connections = incarnation, set()
        binding.stamp = max(binding.stamp, stamp)
        binding.connections.add(connection)
        self._by_connection.setdefault(connection, set()).add(instance_name)

    def unbind(self, connection: SessionConnection, instance_name: str) -> EndedBinding | None:
        """Releases the instance from a connection that may stay open."""
        binding = self._by_instance.get(instance_name)
        if binding is None or connection not in binding.connections:
            return None
        self._remove_from_connection(connection, instance_name)
        binding.connections.discard(connection)
        if binding.connections:
            return None
        del self._by_instance[instance_name]
        return EndedBinding(instance_name, binding.incarnation, binding.stamp)

    def remove(self, connection: SessionConnection) -> list[EndedBinding]:
        """The connection is closed."""
        names = sorted(self._by_connection.get(connection, ()))
        ended = [self.unbind(connection, name) for name in names]
        return [binding for binding in ended if binding]

    def _remove_from_connection(self, connection: SessionConnection, instance_name: str) -> None:
        names = self._by_connection[connection]
        names.discard(instance_name)
        if not names:
            del self._by_connection[connection]


class Opening:
    """One call to the store that may open a session."""

    def __init__(self, mark: SessionMark) -> None:
        self.mark = mark
        self.incarnation = ""

    def opened(self, incarnation: str) -> None:
        """The incarnation in the store's reply; empty when the registration was not accepted."""
        self.incarnation = incarnation


class Sessions:
    def __init__(
        self,
        namespace: Namespace,
        replica: Replica,
        live: LiveSettings,
        removals: RemovalQueue,
        metrics: Metrics,
        *,
        worker: str,
    ) -> None:
        self._namespace = namespace
        self._replica = replica
        self._live = live
        self._removals = removals
        self._metrics = metrics
        self._worker = worker
        self._caller = Caller(worker)
        self._bindings = Bindings()
        self._closed: WeakSet[SessionConnection] = WeakSet()
        """A call may end after the connection it came over."""
        self._stamp = 0
        self._in_flight: set[int] = set()
        """Stamps of the openings whose calls have not ended."""
        self._must_compare = False
        """Whether the store may have sessions of this worker that were closed."""
        self._to_open: dict[str, OpenedSession] = {}
        self._to_close: dict[str, tuple[EndedBinding, float]] = {}
        """By instance name, with the time when the connection ended."""
        self._has_work = asyncio.Event()
        self._recent_ends: deque[float] = deque(maxlen=MAX_RECENT_ENDS)
        self._is_draining = False
        self._has_reported_move = False
        self._losses = LostConnections(
            namespace,
            live,
            removals,
            metrics,
            worker=worker,
            own_share=self._own_share,
            report_again=self._report_again,
        )
        replica.listen(self._close_expired)

    def __len__(self) -> int:
        """Number of instances that are bound to connections of this worker."""
        return len(self._bindings)

    def carried(self) -> list[tuple[str, str]]:
        return self._bindings.carried()

    # -- called by the ports

    @contextmanager
    def opening(self, connection: SessionConnection | None, instance_name: str) -> Iterator[Opening]:
        """Surrounds a call that binds the connection to the instance, if it succeeds."""
        if connection is None or connection in self._closed:
            yield Opening(NO_SESSION)
            return
        bound = self._bindings.incarnation(connection, instance_name)
        instance = self._replica.table.instances.get(instance_name)
        is_open = bool(bound) and instance is not None and instance.incarnation == bound
        stamp = self._next_stamp()
        opening = Opening(NO_SESSION if is_open else SessionMark(self._worker, stamp))
        self._in_flight.add(stamp)
        try:
            yield opening
        except BaseException as error:
            # If nothing was written, no session was opened. But while the primary is cut off from its replicas, brokers
            # have to be moved to another worker, so their connections are bound in this case, too.
            if not is_open and (not isinstance(error, _NOTHING_WRITTEN) or self._namespace.client.cut_off_ms()):
                self._bind(connection, instance_name, "", stamp)
            raise
        finally:
            self._in_flight.discard(stamp)
        if opening.incarnation and (not is_open or opening.incarnation != bound):
            self._bind(connection, instance_name, opening.incarnation, stamp)
            if is_open:  # the incarnation changed meanwhile, and the call opened no session for the new one
                self._reopen(instance_name, opening.incarnation)

    def has_ended(self, connection: SessionConnection | None) -> bool:
        return connection in self._closed

    def has_instances(self, connection: SessionConnection) -> bool:
        """Whether the end of this connection could remove a broker."""
        return self._bindings.has_connection(connection)

    def is_carried_by(self, connection: SessionConnection, instance_name: str) -> bool:
        """Whether the instance was registered over this connection."""
        return bool(self._bindings.incarnation(connection, instance_name))

    def broker_names_of(self, connection: SessionConnection) -> set[str]:
        """The groups whose brokers registered over this connection."""
        instances = self._replica.table.instances
        return {instances[name].broker for name in self._bindings.instances_of(connection) if name in instances}

    def instances_of(self, connection: SessionConnection) -> frozenset[str]:
        """The names of the instances that registered over this connection."""
        return self._bindings.instances_of(connection)

    def is_bound(self, connection: SessionConnection, instance_name: str, incarnation: str) -> bool:
        """Whether this connection carries the instance in this incarnation."""
        return self._bindings.incarnation(connection, instance_name) == incarnation

    def queue_unregistration(
        self, removal: Removal, caller: Caller, connection: SessionConnection | None, *, protects_others: bool = False
    ) -> asyncio.Future[None]:
        """Removes the incarnation that the connection is bound to, otherwise the current one. Afterwards the connection
        is not bound to the instance any more. With `protects_others`, an instance that another connection carries is
        not removed, and the result is a ForbiddenError.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(mark_retrieved)
        if not _can_be_registered(removal):
            done.set_result(None)
            return done
        name = join_instance_name(removal.cluster, removal.address)
        incarnation = self._bindings.incarnation(connection, name) or (UNLESS_CONNECTED if protects_others else "")
        removal = replace(removal, incarnation=incarnation)

        def finish(removed: asyncio.Future[Status]) -> None:
            if done.done():
                return
            if removed.cancelled():
                done.cancel()
            elif error := removed.exception():
                done.set_exception(error)
            elif incarnation == UNLESS_CONNECTED and removed.result() is Status.STALE:
                done.set_exception(ForbiddenError(f"The broker at {removal.address} is carried by another connection."))
            else:
                if connection is not None and (ended := self._bindings.unbind(connection, name)):
                    self._close_later([ended])
                done.set_result(None)

        self._removals.add(removal, caller).add_done_callback(finish)
        return done

    def connection_closed(self, connection: SessionConnection) -> None:
        """Called for every connection that was closed, by whichever side, also for one without instances."""
        self._closed.add(connection)
        ended = self._bindings.remove(connection)
        if not self._is_draining:
            self._close_later(ended)

    def drain(self) -> None:
        """From now on, the end of a connection removes no broker, because this worker closes its connections itself."""
        self._is_draining = True
        self._losses.stop()

    # -- called by the worker and the leader

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._removals.run())
            tasks.create_task(self._losses.run())
            tasks.create_task(self._write_to_store())
            tasks.create_task(self._watch_store())

    def reopen(self) -> None:
        """The store may have lost this worker's sessions: it considered the worker dead, or it lost its last writes.
        In the second case it may also have sessions again that were closed.
        """
        self._must_compare = True
        self._has_work.set()
        for instance_name, incarnation in self._bindings.incarnations():
            self._reopen(instance_name, incarnation)

    async def adopt_lost_connections(self, lease: str) -> Status:
        """The leader takes over the investigations of dead workers."""
        if self._is_draining:
            return Status.UNCHANGED
        status, losses = await adopt_lost_connections(self._namespace, lease, self._worker, caller=self._caller)
        self._losses.investigate_adopted(losses)
        return status

    # -- writing to the store

    def _next_stamp(self) -> int:
        self._stamp += 1
        return self._stamp

    def _bind(self, connection: SessionConnection, instance_name: str, incarnation: str, stamp: int) -> None:
        self._bindings.bind(connection, instance_name, incarnation, stamp)
        if connection in self._closed:  # while the call was under way
            self.connection_closed(connection)

    def _reopen(self, instance_name: str, incarnation: str) -> None:
        """With a new stamp, because a session is opened only with the newest one of its instance."""
        if not self._bindings.is_bound(instance_name):
            return
        stamp = self._next_stamp()
        self._bindings.set_stamp(instance_name, stamp)
        self._to_open[instance_name] = OpenedSession(instance_name, incarnation, stamp)
        self._has_work.set()

    def _close_later(self, ended: Sequence[EndedBinding]) -> None:
        now = time.monotonic()
        for binding in ended:
            self._to_close[binding.instance_name] = (binding, now)
        if ended:
            self._has_work.set()

    def _report_again(self, loss: LostConnection) -> None:
        """Stamp 0 closes no session: there was none, and if there is one now, it is newer than the loss."""
        ended = EndedBinding(loss.instance_name, loss.incarnation, 0)
        self._to_close.setdefault(loss.instance_name, (ended, time.monotonic()))
        self._has_work.set()

    async def _write_to_store(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            try:
                await self._open()
                await self._find_unbound()
                await self._close()
            except StoreError as error:
                _log.debug("%d sessions wait for the store: %s", len(self._to_open) + len(self._to_close), error)
                self._has_work.set()
                await asyncio.sleep(RETRY_S)

    async def _open(self) -> None:
        while self._to_open:
            batch = list(self._to_open.values())[:SESSIONS_PER_CALL]
            current = [
                session
                for session in batch
                if self._bindings.is_current(session.instance_name, session.incarnation, session.stamp)
            ]
            if current:
                await open_sessions(self._namespace, self._worker, current, caller=self._caller)
            for session in batch:
                if self._to_open.get(session.instance_name) is session:
                    del self._to_open[session.instance_name]

    async def _find_unbound(self) -> None:
        """Closes the sessions in the store without a connection. Those of calls in flight may get one yet."""
        if not self._must_compare:
            return
        self._must_compare = False
        newest, in_flight = self._stamp, frozenset(self._in_flight)
        try:
            stored = await read_sessions(self._namespace, self._worker)
        except StoreError:
            self._must_compare = True
            raise
        now = time.monotonic()
        for session in stored:
            if session.stamp > newest or session.stamp in in_flight or self._bindings.is_bound(session.instance_name):
                continue
            waiting, since = self._to_close.get(session.instance_name, (None, now))
            if waiting is None or waiting.stamp < session.stamp:
                ended = EndedBinding(session.instance_name, session.incarnation, session.stamp)
                self._to_close[session.instance_name] = (ended, since)

    async def _close(self) -> None:
        while self._to_close and not self._is_draining:
            batch = list(self._to_close.values())[:SESSIONS_PER_CALL]
            now = time.monotonic()
            sessions = [
                EndedSession(ended.instance_name, ended.incarnation, ended.stamp, int((now - since) * 1000))
                for ended, since in batch
            ]
            results = await close_sessions(self._namespace, self._worker, sessions)
            self._note_closed(batch[: len(results)], results)

    def _note_closed(
        self,
        batch: Sequence[tuple[EndedBinding, float]],
        results: Sequence[tuple[Status, LostConnection | None]],
    ) -> None:
        for item, (status, _) in zip(batch, results, strict=True):
            name = item[0].instance_name
            if self._to_close.get(name) is item:
                del self._to_close[name]
            if status is not Status.STALE:
                self._recent_ends.append(time.monotonic())
            if status is Status.UNCHANGED:
                self._metrics.lost_connection("elsewhere")
        self._losses.investigate([loss for _, loss in results if loss])

    def _own_share(self, within_s: float) -> SessionShare:
        since = time.monotonic() - within_s
        ended = sum(1 for at in self._recent_ends if at >= since)
        return SessionShare(ended, len(self._bindings) + ended)

    # -- watching the store

    async def _watch_store(self) -> None:
        store = self._known_of_store()
        while True:
            await asyncio.sleep(WATCH_S)
            if self._known_of_store() != store:
                store = self._known_of_store()
                self.reopen()
            if not self._is_cut_off():
                self._has_reported_move = False
            elif connections := self._bindings.connections():
                await self._move_away(connections)

    def _known_of_store(self) -> tuple[object, ...]:
        """Changes whenever sessions may be missing. A failover that loses only heartbeats and sessions leaves the
        history as it was, but needs a new connection. In an emptied store, a session cannot be opened before its
        instance is there again, which is certain at the end of a recovery.
        """
        return self._replica.history, self._namespace.client.epoch, self._replica.is_recovering

    def _is_cut_off(self) -> bool:
        return self._out_of_reach_ms() > self._live.current.store_cut_off_ms

    def _out_of_reach_ms(self) -> int:
        """How long the store has not answered, or has refused writes because it is cut off from its replicas."""
        client = self._namespace.client
        return max(client.answer_age_ms(), client.cut_off_ms())

    async def _move_away(self, connections: list[SessionConnection]) -> None:
        """Closes connections, so that their brokers reconnect to a worker that can write their heartbeats."""
        # Brokers that come back here are moved again during the same outage, without another error in the log.
        level = logging.DEBUG if self._has_reported_move else logging.ERROR
        self._has_reported_move = True
        _log.log(
            level,
            "The store is out of reach for %.0f s: connections of %d brokers are closed, so that they go elsewhere.",
            self._out_of_reach_ms() / 1000,
            len(self._bindings),
        )
        random.shuffle(connections)
        for connection in connections:
            if not self._is_cut_off():
                return
            if connection not in self._closed:
                connection.close("the store is out of reach of this worker")
            await asyncio.sleep(MOVE_WITHIN_S / len(connections))

    def _close_expired(self, changes: Sequence[Change], _before: Table) -> None:
        """Closes the connections of expired instances, whichever worker expired them: those have to register again."""
        for change in changes:
            if change.kind == "broker-removed" and change.fields.get("cause") == "expired":
                for name in change.instance_names:
                    for connection in self._bindings.connections_of(name, change.fields["incarnation"]):
                        connection.close(f"{name} was silent for longer than its timeout")


def _can_be_registered(removal: Removal) -> bool:
    """Without these names no registration is accepted; and an empty address would mean a seat."""
    return bool(removal.cluster and removal.broker and removal.address)
