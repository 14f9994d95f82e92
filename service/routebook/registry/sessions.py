"""Sessions: which instances are connected to this worker, so that the end of a connection can mean something."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from weakref import WeakSet

from routebook.model.caller import Caller
from routebook.model.names import member_name
from routebook.registry.departures import Departures
from routebook.registry.held_connections import HeldConnection, HeldConnections
from routebook.replica.replica import Replica
from routebook.settings.live import LiveSettings
from routebook.store.book import Book
from routebook.store.removal import Departure
from routebook.store.statuses import Status

_log = logging.getLogger(__name__)

__all__ = ["HeldConnection", "Opening", "Sessions"]


class Opening:
    """One call to the store that may open a session."""

    def __init__(self) -> None:
        self.incarnation = ""

    def opened(self, incarnation: str) -> None:
        self.incarnation = incarnation


class Sessions:
    def __init__(
        self, book: Book, replica: Replica, live: LiveSettings, departures: Departures, *, worker: str
    ) -> None:
        self._book = book
        self._replica = replica
        self._live = live
        self._departures = departures
        self._worker = worker
        self._held = HeldConnections()
        self._gone: WeakSet[HeldConnection] = WeakSet()
        self._stamp = 0
        self._leaving = False

    def __len__(self) -> int:
        return len(self._held)

    @contextmanager
    def opening(self, connection: HeldConnection | None, member: str) -> Iterator[Opening]:
        opening = Opening()
        yield opening
        if connection is not None and opening.incarnation and connection not in self._gone:
            self._stamp += 1
            self._held.bind(connection, member, opening.incarnation, self._stamp)

    def carries(self, connection: HeldConnection) -> bool:
        """Whether its end would mean something."""
        return self._held.carries(connection)

    def incarnation(self, connection: HeldConnection | None, member: str) -> str:
        return self._held.incarnation(connection, member)

    def depart(self, departure: Departure, caller: Caller, connection: HeldConnection | None) -> asyncio.Future[None]:
        """Of the stay that the connection carries, else of the current one; and it carries it no more."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        if not _may_be_in_the_book(departure):
            done.set_result(None)
            return done
        member = member_name(departure.cluster, departure.address)
        meant = replace(departure, incarnation=self._held.incarnation(connection, member))

        def settle(left: asyncio.Future[Status]) -> None:
            if done.done():
                return
            if error := left.exception():
                done.set_exception(error)
                return
            if connection is not None:
                self._held.unbind(connection, member)
            done.set_result(None)

        self._departures.add(meant, caller).add_done_callback(settle)
        return done

    def lost(self, connection: HeldConnection) -> None:
        """Called by the port when a connection is closed, whatever closed it, also one that never carried anything."""
        self._gone.add(connection)
        self._held.drop(connection)

    def leave(self) -> None:
        """This worker drains: from now on the end of a connection says nothing about its broker."""
        self._leaving = True

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._departures.run())


def _may_be_in_the_book(departure: Departure) -> bool:
    """What cannot be registered need not be asked for; an empty address would name a seat."""
    return bool(departure.cluster and departure.broker and departure.address)
