"""Which connections of this worker carry which instances. Knows no store.

An instance is carried by every connection over which its present stay was registered or touched; several brokers on one
connection (a container) are several instances. Each opening of a session has a number, its stamp, and the store keeps
the highest: closing names the stamp that was known last, so a closing that is overtaken by a newer opening closes
nothing.

Sessions: which instances are connected to this worker, so that the end of a connection can mean something.

Invariant: while a connection of this worker is known to carry an instance, the store has a session of this worker for
it, or will have one as soon as it can be told. The other direction may fail (a call timed out, and opened a session all
the same): that errs on the side of removing nobody.

A session is opened by the script that registers or touches, so registration and session are one step; only if the
connection does not carry that stay yet. It is closed when the last connection that carries the instance is gone.
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

from routebook.errors import InvalidInputError, RefusedError, StoreError, StoreRefusalError
from routebook.model.names import Caller, join_instance_name
from routebook.observability.metrics import Metrics
from routebook.registry.departures import Departures
from routebook.registry.lost_connections import LostConnections, Share
from routebook.replica.replica import Replica
from routebook.replica.table import Table
from routebook.settings.live import LiveSettings
from routebook.store.history import Change
from routebook.store.namespace import Namespace, Status
from routebook.store.removal import Departure
from routebook.store.sessions import (
    NO_SESSION,
    EndedSession,
    LostConnection,
    OpenedSession,
    SessionMark,
    adopt_lost_connections,
    close_sessions,
    open_sessions,
)


class HeldConnection(Protocol):
    """A connection of a port, as far as sessions need it. Hashable by identity, and weakly referenceable."""

    @property
    def peer(self) -> str: ...

    def close(self, reason: str) -> None:
        """The port closes it; it says `sessions.lost` when it is closed, as for any other end."""


@dataclass(slots=True)
class Carried:
    """One instance that at least one connection of this worker carries."""

    incarnation: str
    """Empty: a call to the store that may have opened a session failed, so nobody knows."""
    stamp: int
    connections: set[HeldConnection] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Ended:
    """The last connection of this worker that carried the instance is gone."""

    instance_name: str
    incarnation: str
    stamp: int


class HeldConnections:
    def __init__(self) -> None:
        self._carried: dict[str, Carried] = {}
        self._carried_by: dict[HeldConnection, set[str]] = {}

    def __len__(self) -> int:
        """Instances, not connections."""
        return len(self._carried)

    def incarnation(self, connection: HeldConnection | None, instance_name: str) -> str:
        """Of the stay that the connection carries; empty when it carries none of it."""
        carried = self._carried.get(instance_name)
        return carried.incarnation if carried and connection in carried.connections else ""

    def stays(self) -> list[tuple[str, str]]:
        """Member and incarnation of all that is carried and known."""
        return [
            (instance_name, carried.incarnation)
            for instance_name, carried in self._carried.items()
            if carried.incarnation
        ]

    def carries(self, connection: HeldConnection) -> bool:
        return connection in self._carried_by

    def carriers(self) -> list[HeldConnection]:
        return list(self._carried_by)

    def carriers_of(self, instance_name: str, incarnation: str) -> list[HeldConnection]:
        carried = self._carried.get(instance_name)
        return list(carried.connections) if carried and carried.incarnation == incarnation else []

    def is_current(self, instance_name: str, incarnation: str, stamp: int) -> bool:
        """Still carried, in the same stay, and nothing was opened since."""
        carried = self._carried.get(instance_name)
        return carried is not None and (carried.incarnation, carried.stamp) == (incarnation, stamp)

    def restamp(self, instance_name: str, stamp: int) -> None:
        """Its session is opened once more."""
        self._carried[instance_name].stamp = stamp

    def bind(self, connection: HeldConnection, instance_name: str, incarnation: str, stamp: int) -> None:
        """Another stay than the one carried before: the connections of that one carry nothing of this."""
        carried = self._carried.get(instance_name)
        if carried is None:
            carried = self._carried[instance_name] = Carried(incarnation, stamp)
        elif incarnation and carried.incarnation != incarnation:
            for other in carried.connections - {connection}:
                self._forget(other, instance_name)
            carried.incarnation, carried.connections = incarnation, set()
        carried.stamp = max(carried.stamp, stamp)
        carried.connections.add(connection)
        self._carried_by.setdefault(connection, set()).add(instance_name)

    def unbind(self, connection: HeldConnection, instance_name: str) -> Ended | None:
        """Not carried by this connection any more, though it is still open."""
        carried = self._carried.get(instance_name)
        if carried is None or connection not in carried.connections:
            return None
        self._forget(connection, instance_name)
        carried.connections.discard(connection)
        if carried.connections:
            return None
        del self._carried[instance_name]
        return Ended(instance_name, carried.incarnation, carried.stamp)

    def drop(self, connection: HeldConnection) -> list[Ended]:
        """It is closed."""
        instance_names = sorted(self._carried_by.get(connection, ()))
        ended = [self.unbind(connection, instance_name) for instance_name in instance_names]
        return [one for one in ended if one]

    def _forget(self, connection: HeldConnection, instance_name: str) -> None:
        instance_names = self._carried_by[connection]
        instance_names.discard(instance_name)
        if not instance_names:
            del self._carried_by[connection]


_log = logging.getLogger(__name__)

__all__ = ["HeldConnection", "Opening", "Sessions"]

SESSIONS_PER_CALL: Final = 200
RETRY_S: Final = 0.5
WATCH_S: Final = 0.5
MOVE_WITHIN_S: Final = 5.0
"""Connections closed since the store is out of reach: not all in one instant, for they all come back at once."""
ENDED_REMEMBERED: Final = 100_000


class Opening:
    """One call to the store that may open a session."""

    def __init__(self, mark: SessionMark) -> None:
        self.mark = mark
        self.incarnation = ""

    def opened(self, incarnation: str) -> None:
        """What the store said. Empty: there is no such stay."""
        self.incarnation = incarnation


class Sessions:
    def __init__(
        self,
        namespace: Namespace,
        replica: Replica,
        live: LiveSettings,
        departures: Departures,
        metrics: Metrics,
        *,
        worker: str,
    ) -> None:
        self._namespace = namespace
        self._replica = replica
        self._live = live
        self._departures = departures
        self._metrics = metrics
        self._worker = worker
        self._caller = Caller(worker)
        self._held = HeldConnections()
        self._closed: WeakSet[HeldConnection] = WeakSet()
        """A call may end after the connection it came over."""
        self._stamp = 0
        self._to_open: dict[str, OpenedSession] = {}
        self._ended: dict[str, tuple[Ended, float]] = {}
        self._to_tell = asyncio.Event()
        self._ended_at: deque[float] = deque(maxlen=ENDED_REMEMBERED)
        self._leaving = False
        self._told_of_moving = False
        self._losses = LostConnections(
            namespace,
            live,
            departures,
            metrics,
            worker=worker,
            own_share=self._own_share,
            tell_again=self._tell_again,
        )
        replica.listen(self._see)

    def __len__(self) -> int:
        """Instances that connections of this worker carry."""
        return len(self._held)

    # -- what the port does

    @contextmanager
    def opening(self, connection: HeldConnection | None, instance_name: str) -> Iterator[Opening]:
        """Around a call that makes the connection carry the instance, if it succeeds."""
        if connection is None or connection in self._closed:
            yield Opening(NO_SESSION)
            return
        carried = self._held.incarnation(connection, instance_name)
        instance = self._replica.table.instances.get(instance_name)
        is_open = bool(carried) and instance is not None and instance.incarnation == carried
        stamp = self._next_stamp()
        opening = Opening(NO_SESSION if is_open else SessionMark(self._worker, stamp))
        try:
            yield opening
        except (RefusedError, InvalidInputError, StoreRefusalError):
            raise  # nothing was written
        except BaseException:
            if not is_open:
                self._bind(connection, instance_name, "", stamp)
            raise
        if opening.incarnation and (not is_open or opening.incarnation != carried):
            self._bind(connection, instance_name, opening.incarnation, stamp)
            if is_open:  # it was another stay by then, and the call did not open a session
                self._open_later(instance_name, opening.incarnation, stamp)

    def carries(self, connection: HeldConnection) -> bool:
        """Whether its end would mean something."""
        return self._held.carries(connection)

    def depart(self, departure: Departure, caller: Caller, connection: HeldConnection | None) -> asyncio.Future[None]:
        """Of the stay that the connection carries, else of the current one; and it carries it no more."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        if not _names_an_instance(departure):
            done.set_result(None)
            return done
        instance_name = join_instance_name(departure.cluster, departure.address)
        meant = replace(departure, incarnation=self._held.incarnation(connection, instance_name))

        def settle(left: asyncio.Future[Status]) -> None:
            if done.done():
                return
            if left.cancelled():
                done.cancel()
            elif error := left.exception():
                done.set_exception(error)
            else:
                if connection is not None and (ended := self._held.unbind(connection, instance_name)):
                    self._close_later([ended])
                done.set_result(None)

        self._departures.add(meant, caller).add_done_callback(settle)
        return done

    def lost(self, connection: HeldConnection) -> None:
        """Called by the port when a connection is closed, whatever closed it, also one that never carried anything."""
        self._closed.add(connection)
        ended = self._held.drop(connection)
        if not self._leaving:
            self._close_later(ended)

    def leave(self) -> None:
        """This worker drains: from now on the end of a connection says nothing about its broker."""
        self._leaving = True
        self._losses.stop()

    # -- what the worker and the leader do

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._departures.run())
            tasks.create_task(self._losses.run())
            tasks.create_task(self._tell_the_store())
            tasks.create_task(self._watch_the_store())

    def reopen(self) -> None:
        """The store has forgotten what it was told: this worker was taken for dead, or the last writes were lost."""
        for instance_name, incarnation in self._held.stays():
            stamp = self._next_stamp()
            self._held.restamp(instance_name, stamp)
            self._open_later(instance_name, incarnation, stamp)

    async def adopt_lost_connections(self, lease: str) -> Status:
        """As the leader: looks into what dead workers were looking into."""
        if self._leaving:
            return Status.UNCHANGED
        status, losses = await adopt_lost_connections(self._namespace, lease, self._worker, caller=self._caller)
        self._losses.look_into(losses, grace_over=True)
        return status

    # -- telling the store

    def _next_stamp(self) -> int:
        self._stamp += 1
        return self._stamp

    def _bind(self, connection: HeldConnection, instance_name: str, incarnation: str, stamp: int) -> None:
        self._held.bind(connection, instance_name, incarnation, stamp)
        if connection in self._closed:  # while the call was under way
            self.lost(connection)

    def _open_later(self, instance_name: str, incarnation: str, stamp: int) -> None:
        self._to_open[instance_name] = OpenedSession(instance_name, incarnation, stamp)
        self._to_tell.set()

    def _close_later(self, ended: Sequence[Ended]) -> None:
        now = time.monotonic()
        for one in ended:
            self._ended[one.instance_name] = (one, now)
        if ended:
            self._to_tell.set()

    def _tell_again(self, loss: LostConnection) -> None:
        """Stamp 0 closes no session: there was none, and if there is one now, it is a newer one."""
        self._ended.setdefault(loss.instance_name, (Ended(loss.instance_name, loss.incarnation, 0), time.monotonic()))
        self._to_tell.set()

    async def _tell_the_store(self) -> None:
        while True:
            await self._to_tell.wait()
            self._to_tell.clear()
            try:
                await self._open()
                await self._close()
            except StoreError as error:
                _log.debug("%d sessions wait for the store: %s", len(self._to_open) + len(self._ended), error)
                self._to_tell.set()
                await asyncio.sleep(RETRY_S)

    async def _open(self) -> None:
        while self._to_open:
            batch = list(self._to_open.values())[:SESSIONS_PER_CALL]
            carried = [one for one in batch if self._held.is_current(one.instance_name, one.incarnation, one.stamp)]
            if carried:
                await open_sessions(self._namespace, self._worker, carried, caller=self._caller)
            for one in batch:
                if self._to_open.get(one.instance_name) is one:
                    del self._to_open[one.instance_name]

    async def _close(self) -> None:
        while self._ended and not self._leaving:
            batch = list(self._ended.values())[:SESSIONS_PER_CALL]
            now = time.monotonic()
            sessions = [
                EndedSession(ended.instance_name, ended.incarnation, ended.stamp, int((now - since) * 1000))
                for ended, since in batch
            ]
            told = await close_sessions(self._namespace, self._worker, sessions)
            self._note_closed(batch[: len(told)], told)

    def _note_closed(
        self, batch: Sequence[tuple[Ended, float]], told: Sequence[tuple[Status, LostConnection | None]]
    ) -> None:
        for one, (status, _) in zip(batch, told, strict=True):
            if self._ended.get(one[0].instance_name) is one:
                del self._ended[one[0].instance_name]
            if status is not Status.STALE:
                self._ended_at.append(time.monotonic())
            if status is Status.UNCHANGED:
                self._metrics.lost_connection("elsewhere")
        self._losses.look_into([loss for _, loss in told if loss])

    def _own_share(self, within_s: float) -> Share:
        since = time.monotonic() - within_s
        ended = sum(1 for at in self._ended_at if at >= since)
        return Share(ended, len(self._held) + ended)

    # -- watching

    async def _watch_the_store(self) -> None:
        history = self._replica.history
        while True:
            await asyncio.sleep(WATCH_S)
            if self._replica.history != history:
                history = self._replica.history
                self.reopen()
            if not self._is_cut_off():
                self._told_of_moving = False
            elif carriers := self._held.carriers():
                await self._move_away(carriers)

    def _is_cut_off(self) -> bool:
        return self._namespace.client.answer_age_ms() > self._live.current.store_cut_off_ms

    async def _move_away(self, carriers: list[HeldConnection]) -> None:
        """Their brokers come back, through the balancer, to a worker that can write down that they live."""
        # Brokers that come back here are moved again, each round of the outage.
        level = logging.DEBUG if self._told_of_moving else logging.ERROR
        self._told_of_moving = True
        _log.log(
            level,
            "The store is out of reach for %.0f s: connections of %d brokers are closed, so that they go elsewhere.",
            self._namespace.client.answer_age_ms() / 1000,
            len(self._held),
        )
        random.shuffle(carriers)
        for connection in carriers:
            if not self._is_cut_off():
                return
            if connection not in self._closed:
                connection.close("the store is out of reach of this worker")
            await asyncio.sleep(MOVE_WITHIN_S / len(carriers))

    def _see(self, changes: Sequence[Change], _before: Table) -> None:
        """Whoever was expired, by whichever worker, is not listened to any longer: it has to come anew."""
        for change in changes:
            if change.kind == "broker-removed" and change.fields.get("cause") == "expired":
                for instance_name in change.instance_names:
                    for connection in self._held.carriers_of(instance_name, change.fields["incarnation"]):
                        connection.close(f"{instance_name} was silent for longer than its timeout")


def _names_an_instance(departure: Departure) -> bool:
    """What cannot be registered need not be asked for; an empty address would name a seat."""
    return bool(departure.cluster and departure.broker and departure.address)
