"""Encoded answers, kept until their topic changes.

The route table of one namespace in the memory of one worker: answers without a step to the store.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

from routebook.errors import NotReadyError, NotSeenYetError
from routebook.model.broker import TopicRoute
from routebook.model.topic import ORDER_TOPIC_NAMESPACE, QueueData
from routebook.protocol.answer_bodies import Dialect, encode_route
from routebook.replica.contents import Contents
from routebook.replica.feed import Feed, FeedCounts
from routebook.replica.load import Position
from routebook.replica.recovery import RecoveryState
from routebook.replica.routes import pick_up_route
from routebook.replica.subscriptions import Subscription, Subscriptions
from routebook.replica.table import Table
from routebook.settings import LiveSettings, Settings
from routebook.store.history import Change
from routebook.store.namespace import Namespace
from routebook.store.workers import HistoryHead

DEFAULT_MAX_BYTES: Final = 128 << 20
"""A route of 100 brokers is about 20 KB; 10 000 of them would be 200 MB if all were asked for."""


class Answers:
    """Bounded; the oldest goes first. A hit costs one look-up and nothing else, which is why it is not the
    least recently used.
    """

    __slots__ = ("_bodies", "_bytes", "_max_bytes", "get")

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._bodies: dict[str, bytes] = {}
        self.get: Callable[[str], bytes | None] = self._bodies.get
        """The dictionary's own: the hot path has no room for a function around it."""
        self._bytes = 0
        self._max_bytes = max_bytes

    def __len__(self) -> int:
        return len(self._bodies)

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def keep(self, topic: str, body: bytes) -> None:
        self._drop(topic)
        self._bodies[topic] = body
        self._bytes += len(body)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._bodies)))

    def take_out(self, topics: Collection[str]) -> dict[str, bytes]:
        """Those answers are no longer good; the caller may want to compare."""
        if len(topics) > len(self._bodies):
            topics = [topic for topic in self._bodies if topic in topics]
        return {topic: body for topic in topics if (body := self._drop(topic)) is not None}

    def _drop(self, topic: str) -> bytes | None:
        body = self._bodies.pop(topic, None)
        if body is not None:
            self._bytes -= len(body)
        return body


MAX_COMPARED_BYTES: Final = 256 << 10
"""Routes are encoded anew to see whether they differ only up to this size: some 5 ms of work. A change that touches
more is told of without looking.
"""

TellChanges = Callable[[Sequence[Change], Table], None]


class Replica:
    """`run` fills it and keeps it current; everything else answers at once, or waits for what `run` brings."""

    def __init__(
        self,
        namespace: Namespace,
        live_settings: LiveSettings,
        *,
        tell_changes: TellChanges | None = None,
        max_answer_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        """`tell_changes` is told of each batch of changes while the table is still as it was before them."""
        self._live_settings = live_settings
        self._listeners = [tell_changes] if tell_changes else []
        self._contents = Contents()
        self._feed = Feed(
            namespace,
            self._contents,
            self,
            recovery_window_ms=lambda: live_settings.current.recovery_window_ms,
        )
        self._answers = Answers(max_answer_bytes)
        self._plain_answers = Answers(max_answer_bytes // 4)
        self._subscriptions = Subscriptions()
        self._shape = _shape_of(live_settings.current)
        self._applied_settings: dict[str, str] = {}
        self._moved = asyncio.Event()
        self._moves = 0

    def listen(self, tell_changes: TellChanges) -> None:
        """One more that is told of each batch of changes."""
        self._listeners.append(tell_changes)

    async def run(self) -> None:
        """Follows the store until cancelled, through whatever happens to it."""
        unsubscribe = self._live_settings.subscribe(self._settings_changed)
        try:
            await self._feed.run()
        finally:
            unsubscribe()

    # -- what is known

    @property
    def view(self) -> Table:
        """What readers are shown: during a recovery, what the store says and what it has lost and not
        contradicted.
        """
        return self._contents.shown

    @property
    def table(self) -> Table:
        """What the store holds, as far as it has been followed."""
        return self._contents.table

    @property
    def complete(self) -> bool:
        """A whole table has been loaded once."""
        return self._contents.is_complete

    @property
    def current(self) -> bool:
        """Complete, in touch with the store, and following its history: what is not here does not exist."""
        return self.complete and self._feed.follows and self.stale_ms() == 0

    @property
    def version(self) -> int:
        return self._contents.position.version

    @property
    def moves(self) -> int:
        """Rises with each step of what is shown, also with those that are no version: what was made of `view` is as
        good as new while this number is the same.
        """
        return self._moves

    @property
    def ms(self) -> int:
        """When that version was written, on the store's clock: the first half of its entry's id."""
        return self._contents.position.ms

    @property
    def history(self) -> str:
        return self._contents.position.history

    @property
    def identity(self) -> str:
        return self._contents.position.identity

    @property
    def digest(self) -> str:
        """Of `table`: equal on all workers that have seen the same version."""
        return self._contents.table.digest

    @property
    def counts(self) -> FeedCounts:
        return self._feed.counts

    @property
    def watchers(self) -> int:
        return len(self._subscriptions)

    def stale_ms(self) -> int:
        """Age of the last contact with the store; 0 while in touch."""
        return self._feed.stale_ms()

    def lag(self) -> tuple[int, float]:
        """Changes that are known to be in the store and not shown, and for how many seconds."""
        return self._feed.lag()

    def route_bytes(self, topic: str) -> bytes | None:
        """The route as standard JSON. Kept until the route changes; None when there is none."""
        return self._answers.get(topic) or self._encoded(topic, Dialect.STANDARD, self._answers)

    @property
    def kept_route_bytes(self) -> Callable[[str], bytes | None]:
        """Looks only into what `route_bytes` has kept."""
        return self._answers.get

    def plain_route_bytes(self, topic: str) -> bytes | None:
        """The same for clients before 4.9.4, which want integer keys without quotes."""
        return self._plain_answers.get(topic) or self._encoded(topic, Dialect.PLAIN, self._plain_answers)

    def route(self, topic: str) -> TopicRoute | None:
        acting, order = self._shape
        return pick_up_route(self.view, topic, support_acting_master=acting, order_conf_enabled=order)

    def _encoded(self, topic: str, dialect: Dialect, kept: Answers) -> bytes | None:
        route = self.route(topic)
        if route is None:
            return None
        body = encode_route(route, dialect)
        kept.keep(topic, body)
        return body

    # -- waiting

    async def wait_complete(self, timeout_ms: int) -> None:
        if not await self._wait(lambda: self.complete, timeout_ms):
            raise NotReadyError(
                f"The table was not loaded within {timeout_ms} ms.",
                advice="Is the store reachable? See the log, and `routebook doctor`.",
            )

    async def wait_for(self, version: int, timeout_ms: int) -> None:
        """Until this replica has seen that version of the history it follows."""
        if not await self._wait(lambda: self.version >= version, timeout_ms):
            raise NotSeenYetError(version, self.version)

    async def wait_for_another_history(self, known: str, timeout_ms: int) -> None:
        """Somebody has seen that the store no longer follows the history we knew."""
        self._feed.doubt()
        if not await self._wait(lambda: self.history != known, timeout_ms):
            raise NotReadyError(
                "The store has lost its data and the table is not loaded anew yet.", advice="Try again."
            )

    async def _wait(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not condition():
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True

    def subscribe(self, topic: str | None = None) -> Subscription:
        """Changes of one route, or (None) of all, from now on."""
        return self._subscriptions.add(topic)

    def check_history_head(self, head: HistoryHead) -> None:
        """What somebody else has seen of the store, who asks it more often than the feed does."""
        self._feed.check_history_head(head)

    # -- after a loss

    @property
    def is_recovering(self) -> bool:
        """Something is shown that the store has lost: deletions have to be written down even if they find
        nothing.
        """
        return self._contents.recovery is not None

    @property
    def recovery(self) -> RecoveryState | None:
        return self._contents.recovery.state if self._contents.recovery else None

    def carried_kv(self) -> dict[str, dict[str, str]]:
        """By namespace: key-values that the store lost and the leader has to write back."""
        recovery = self._contents.recovery
        return recovery.carried_kv(self.table) if recovery else {}

    def carried_settings(self) -> dict[str, str]:
        """Run-time settings to write back."""
        recovery = self._contents.recovery
        return recovery.carried_settings(self.table) if recovery else {}

    def carried_queues(self) -> dict[str, dict[str, QueueData]]:
        """By broker that is back: queues that came from register-topic, which no broker brings."""
        recovery = self._contents.recovery
        return recovery.carried_queues(self.table) if recovery else {}

    # -- told by the feed

    def foresee(self, changes: Sequence[Change]) -> None:
        for listener in self._listeners:
            listener(changes, self.table)

    def drop(self, topics: set[str]) -> None:
        self._moves += 1
        self._take_out(topics)

    def tell(self, topics: set[str], position: Position) -> None:
        self._moves += 1
        self._tell(topics, self._take_out(topics), position)
        if self.view.settings != self._applied_settings:
            self._applied_settings = dict(self.view.settings)
            self._live_settings.apply(self._applied_settings)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _tell(self, topics: Collection[str], stale: dict[str, bytes], position: Position) -> None:
        if not self._subscriptions or not topics:
            return
        wanted = self._subscriptions.wanted(topics)
        if sum(len(stale[topic]) for topic in wanted if topic in stale) <= MAX_COMPARED_BYTES:
            wanted = [topic for topic in wanted if topic not in stale or stale[topic] != self.route_bytes(topic)]
        self._subscriptions.publish(wanted, position.ms, position.version)

    def _take_out(self, topics: Collection[str]) -> dict[str, bytes]:
        """The standard ones, to compare: the dialects differ together."""
        self._plain_answers.take_out(topics)
        return self._answers.take_out(topics)

    def _settings_changed(self, settings: Settings) -> None:
        """Two settings shape routes: the routes they concern are told of like any other change."""
        before, self._shape = self._shape, _shape_of(settings)
        topics: set[str] = set()
        if before[0] != self._shape[0]:
            topics |= {
                topic
                for name, group in self.view.groups.items()
                if group.acting_master
                for topic in self.view.queues_of(name)
            }
        if before[1] != self._shape[1]:
            topics |= self.view.kv.get(ORDER_TOPIC_NAMESPACE, {}).keys()
        self._tell(topics, self._take_out(topics), self._contents.position)


def _shape_of(settings: Settings) -> tuple[bool, bool]:
    return settings.support_acting_master, settings.order_message_enable
