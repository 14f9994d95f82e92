"""What lies between the processes: delays, cuts, and connections to the store that break.

`StoreServer` is a store on this network, and `SimulatedClient` takes the place of the service's `StoreClient`, with the
same promises: one command at a time per connection, in order; a call that ran out of time or lost its connection may
have been carried out; a new set of connections is a new epoch.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from redis.exceptions import ResponseError

from routebook.errors import StoreError, StoreUnavailableError
from routebook.store.connection.client import ATTEMPT_SECONDS, PAUSE_AFTER_FAILURE_SECONDS, StoreClient
from routebook.store.connection.link import StoreRefusedError, Word, translate_reply
from routebook.store.connection.url import StoreUrl
from tests.simulation.lua_store import MemoryStore
from tests.simulation.memory_values import CommandError
from tests.simulation.virtual_time import VirtualLoop

STORE: Final = "store"
"""Name of the store on the network, for cuts."""
URL: Final = StoreUrl.parse("redis://127.0.0.1:1")
"""Never dialled."""
SPLIT_PIPELINES: Final = 0.1
"""Share of the pipelines whose commands are carried out in two steps. A pipeline is no transaction."""

OnRun = Callable[["StoreServer", Sequence[Word], Any], None]
"""Called with each command and its reply, after the server has carried it out."""


class Network:
    def __init__(self, loop: VirtualLoop, seed: str) -> None:
        self.loop = loop
        self.chance = random.Random(f"{seed}/network")
        self.store_delay_s = 0.0
        """Added to each call to the store while it is slow."""
        self._cuts: dict[frozenset[str], int] = {}
        self._held: list[tuple[frozenset[str], Callable[[], None]]] = []

    def delay(self) -> float:
        """Mostly below a millisecond, sometimes much longer."""
        roll = self.chance.random()
        return 0.0002 + 0.0008 * roll if roll < 0.97 else 0.05 * self.chance.random()

    def at(self, when: float, callback: Callable[..., Any], *arguments: Any) -> None:
        """As no process, so that it happens even if the sender is killed."""
        self.loop.call_outside(when, callback, arguments)

    def deliver(self, source: str, target: str, callback: Callable[..., Any], *arguments: Any) -> None:
        """A message: lost if the two are cut apart when it is sent or when it arrives."""
        if self.is_cut(source, target):
            return
        self.at(self.loop.now + self.delay(), self._arrive, frozenset((source, target)), callback, arguments)

    def deliver_end(self, source: str, target: str, callback: Callable[[], None]) -> None:
        """The end of a connection: while the two are cut apart, it waits."""
        pair = frozenset((source, target))
        if pair in self._cuts:
            self._held.append((pair, callback))
        else:
            self.at(self.loop.now + self.delay(), callback)

    def _arrive(self, pair: frozenset[str], callback: Callable[..., Any], arguments: Sequence[Any]) -> None:
        if pair not in self._cuts:
            callback(*arguments)

    def is_cut(self, one: str, other: str) -> bool:
        return bool(self._cuts) and frozenset((one, other)) in self._cuts

    def cut(self, one: str, other: str) -> None:
        pair = frozenset((one, other))
        self._cuts[pair] = self._cuts.get(pair, 0) + 1

    def heal(self, one: str, other: str) -> None:
        """Cuts may overlap: the last one to heal counts."""
        pair = frozenset((one, other))
        left = self._cuts.pop(pair, 1) - 1
        if left > 0:
            self._cuts[pair] = left
            return
        waiting = [callback for held, callback in self._held if held == pair]
        self._held = [item for item in self._held if item[0] != pair]
        for callback in waiting:
            self.at(self.loop.now + self.delay(), callback)

    def heal_all(self) -> None:
        for pair in list(self._cuts):
            self._cuts[pair] = 1
            one, other = sorted(pair)
            self.heal(one, other)


@dataclass(eq=False, slots=True)
class Connection:
    """One set of connections from a client to a server."""

    server: "StoreServer"
    place: str
    """The client's worker on the network."""
    on_end: Callable[["Connection"], None]
    is_open: bool = True
    pending: dict["asyncio.Future[list[Any]]", None] = field(default_factory=dict)
    last_arrival: dict[str, float] = field(default_factory=dict)
    last_reply: dict[str, float] = field(default_factory=dict)

    def end(self, reason: str) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self.server.connections.pop(self, None)
        pending, self.pending = self.pending, {}
        for future in pending:
            if not future.done():
                future.set_exception(StoreUnavailableError(reason))
        self.on_end(self)


@dataclass(eq=False, slots=True)
class _Blocked:
    connection: Connection
    words: tuple[bytes, ...]
    future: "asyncio.Future[list[Any]]"


class StoreServer:
    """A store that can be stopped and started. Its connections are reset when it stops."""

    def __init__(self, network: Network, store: MemoryStore, on_run: OnRun) -> None:
        self.network = network
        self.store = store
        self.is_up = True
        self.connections: dict[Connection, None] = {}
        self._on_run = on_run
        self._blocked: list[_Blocked] = []

    def stop(self) -> None:
        self.is_up = False
        self.reset_connections()

    def start(self) -> None:
        self.is_up = True

    def reset_connections(self, place: str | None = None) -> None:
        """Resets the connections of one worker, or of all."""
        for connection in [one for one in self.connections if place in (None, one.place)]:
            del self.connections[connection]
            self.network.deliver_end(STORE, connection.place, partial(connection.end, "It was reset."))
        self._blocked = [one for one in self._blocked if one.connection in self.connections]

    def send(
        self, connection: Connection, commands: Sequence[Sequence[Word]], future: "asyncio.Future[list[Any]]", lane: str
    ) -> None:
        """Commands of one lane arrive in their order."""
        network = self.network
        if network.is_cut(connection.place, STORE):
            return
        arrival = network.loop.now + network.delay() + network.store_delay_s / 2
        arrival = connection.last_arrival[lane] = max(arrival, connection.last_arrival.get(lane, 0.0))
        network.at(arrival, self._arrive, connection, commands, future, lane, [])

    def _arrive(
        self,
        connection: Connection,
        commands: Sequence[Sequence[Word]],
        future: "asyncio.Future[list[Any]]",
        lane: str,
        replies: list[Any],
    ) -> None:
        network = self.network
        if connection not in self.connections or not self.is_up or network.is_cut(connection.place, STORE):
            return
        split = len(commands)
        if split > 1 and network.chance.random() < SPLIT_PIPELINES:
            split = network.chance.randrange(1, split)
        replies.extend(self.carry_out(words) for words in commands[:split])
        self._serve_blocked()
        if split < len(commands):
            later = network.loop.now + network.delay()
            connection.last_arrival[lane] = max(later, connection.last_arrival[lane])
            network.at(later, self._arrive, connection, commands[split:], future, lane, replies)
            return
        self._reply(connection, future, replies, lane)

    def carry_out(self, words: Sequence[Word]) -> Any:
        """Error replies are returned."""
        try:
            reply = self.store.execute(*words)
        except CommandError as error:
            reply = translate_reply(ResponseError(str(error)))
        self._on_run(self, words, reply)
        return reply

    def _reply(
        self, connection: Connection, future: "asyncio.Future[list[Any]]", replies: list[Any], lane: str
    ) -> None:
        network = self.network
        if network.is_cut(connection.place, STORE):
            return
        when = network.loop.now + network.delay() + network.store_delay_s / 2
        when = connection.last_reply[lane] = max(when, connection.last_reply.get(lane, 0.0))
        network.at(when, self._hand_over, connection, future, replies)

    def _hand_over(self, connection: Connection, future: "asyncio.Future[list[Any]]", replies: list[Any]) -> None:
        if not self.network.is_cut(connection.place, STORE) and future in connection.pending:
            del connection.pending[future]
            if not future.done():
                future.set_result(replies)

    # -- reads that wait for entries

    def read_blocking(
        self, connection: Connection, words: tuple[bytes, ...], future: "asyncio.Future[list[Any]]", block_s: float
    ) -> None:
        network = self.network
        if not network.is_cut(connection.place, STORE):
            network.at(network.loop.now + network.delay(), self._begin_read, connection, words, future, block_s)

    def _begin_read(
        self, connection: Connection, words: tuple[bytes, ...], future: "asyncio.Future[list[Any]]", block_s: float
    ) -> None:
        network = self.network
        if connection not in self.connections or not self.is_up or network.is_cut(connection.place, STORE):
            return
        found = self.store.read_stream(*words)
        if found is not None:
            self._reply(connection, future, [found], "blocking")
            return
        blocked = _Blocked(connection, words, future)
        self._blocked.append(blocked)
        network.at(network.loop.now + block_s, self._end_read, blocked)

    def _end_read(self, blocked: _Blocked) -> None:
        if blocked in self._blocked:
            self._blocked.remove(blocked)
            self._reply(blocked.connection, blocked.future, [None], "blocking")

    def _serve_blocked(self) -> None:
        if not self.store.appended:
            return
        self.store.appended.clear()
        for blocked in list(self._blocked):
            found = self.store.read_stream(*blocked.words)
            if found is not None:
                self._blocked.remove(blocked)
                self._reply(blocked.connection, blocked.future, [found], "blocking")


class SimulatedClient(StoreClient):
    """One worker's connections to the store."""

    def __init__(self, network: Network, place: str, find: Callable[[str], StoreServer]) -> None:
        """`find` returns the server that is the primary for the worker at this place."""
        super().__init__(URL, slot_key="rb:{sim}:meta", timeout_ms=1_000)
        self.network = network
        self._place = place
        self._find = find
        self._current: Connection | None = None
        self._attempt: asyncio.Task[Connection] | None = None

    @property
    def is_connected(self) -> bool:
        return self._current is not None

    def answer_age_ms(self) -> int:
        return int((self.network.loop.now - self._last_answer) * 1000)

    async def open(self) -> None:
        self._last_answer = self.network.loop.now
        await self._connected_until(self.network.loop.now + ATTEMPT_SECONDS + 1)

    async def close(self) -> None:
        if self._current:
            self._current.end("It was closed.")

    def abandon(self) -> None:
        """The worker was killed. What it has sent still arrives."""
        connection = self._current
        if connection:
            self.network.at(self.network.loop.now + 0.01, connection.server.connections.pop, connection, None)

    async def call(self, *words: Word, timeout_ms: int | None = None, epoch: int | None = None) -> Any:
        (reply,) = await self._exchange([words], timeout_ms, "calls", epoch)
        if isinstance(reply, StoreError):
            raise reply
        return reply

    async def pipeline(self, commands: Sequence[Sequence[Word]], timeout_ms: int | None = None) -> list[Any]:
        if not commands:
            return []
        replies = await self._exchange(commands, timeout_ms, "calls" if len(commands) <= 8 else "bulk")
        for reply in replies:
            if isinstance(reply, StoreError):
                raise reply
        return replies

    async def call_blocking(self, *words: Word, block_ms: int) -> Any:
        assert words[0] == "XREAD"
        loop = self.network.loop
        connection = self._current or await self._connected_until(loop.now + self._timeout_ms / 1000)
        at = words.index("BLOCK")
        plain = tuple(str(word).encode() for word in (*words[1:at], *words[at + 2 :]))
        future: asyncio.Future[list[Any]] = loop.create_future()
        connection.pending[future] = None
        connection.server.read_blocking(connection, plain, future, block_ms / 1000)
        (reply,) = await self._reply_in_time(connection, future, loop.now + (self._timeout_ms + block_ms) / 1000)
        return reply

    async def _exchange(
        self, commands: Sequence[Sequence[Word]], timeout_ms: int | None, lane: str, epoch: int | None = None
    ) -> list[Any]:
        loop = self.network.loop
        deadline = loop.now + (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        connection = self._current or await self._connected_until(deadline)
        self._check_epoch(epoch)
        future: asyncio.Future[list[Any]] = loop.create_future()
        connection.pending[future] = None
        connection.server.send(connection, commands, future, lane)
        return await self._reply_in_time(connection, future, deadline)

    async def _reply_in_time(
        self, connection: Connection, future: "asyncio.Future[list[Any]]", deadline: float
    ) -> list[Any]:
        timer = self.network.loop.call_at(deadline, connection.end, "The store did not answer in time.")
        try:
            replies = await future
        finally:
            timer.cancel()
        if not isinstance(replies[-1], StoreRefusedError):
            self._last_answer = self.network.loop.now
        return replies

    async def _connected_until(self, deadline: float) -> Connection:
        if self._current:
            return self._current
        if self._attempt is None:
            self._attempt = asyncio.create_task(self._reach_primary())
            self._attempt.add_done_callback(self._attempt_ended)
        attempt = self._attempt
        await asyncio.wait([attempt], timeout=deadline - self.network.loop.now)
        if not attempt.done():
            raise StoreUnavailableError("The store could not be reached in time.")
        if error := attempt.exception():
            raise StoreUnavailableError(str(error))
        return attempt.result()

    def _attempt_ended(self, attempt: "asyncio.Task[Connection]") -> None:
        self._attempt = None
        if attempt.cancelled() or attempt.exception() is not None:
            self._not_before = self.network.loop.now + PAUSE_AFTER_FAILURE_SECONDS

    async def _reach_primary(self) -> Connection:
        network = self.network
        await asyncio.sleep(self._not_before - network.loop.now)
        server = self._find(self._place)
        await asyncio.sleep(4 * network.delay() + 2 * network.store_delay_s)
        if network.is_cut(self._place, STORE):
            await asyncio.sleep(ATTEMPT_SECONDS)
            raise StoreUnavailableError("The store could not be reached.")
        if not server.is_up:
            raise StoreUnavailableError("The store refuses connections.")
        connection = Connection(server, self._place, self._ended)
        server.connections[connection] = None
        self._current = connection
        self._epoch += 1
        self._last_answer = network.loop.now
        return connection

    def _ended(self, connection: Connection) -> None:
        if self._current is connection:
            self._current = None
