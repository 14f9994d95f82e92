"""Which routes a stretch of the history touched: what a watcher that comes back has to hear.

Invariant: a topic whose route may differ between the version the watcher saw last and the newest one is
named at least once. Naming one too many is harmless, since an event carries the route as it is now. One
entry can hide topics: a removed group took its queue data along without naming it. Then the history before
says which topics those were; where it does not reach back far enough, the answer is "cannot say"
(`GapError`), never a guess.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from typing import Final

from routebook.http_api.sse import EventId
from routebook.model.topic import ORDER_TOPIC_NAMESPACE
from routebook.replica.subscriptions import RouteEvent
from routebook.store.changes import BASELINE_KINDS, Change

ReadChanges = Callable[[int, int], Awaitable[list[Change]]]
"""(after this version, so many at most), oldest first."""

PAGE: Final = 500
LOOK_BACK: Final = 20_000
"""Entries read, at most, to learn what a removed group had; some tenths of a second."""

ONE_BY_ONE: Final = 100

_OF_A_GROUP: Final = frozenset(
    {"broker-registered", "broker-changed", "broker-removed", "group-changed", "write-permission"}
)
_KV: Final = frozenset({"kv-put", "kv-deleted"})


class GapError(Exception):
    """The history does not hold what would be needed."""


class Told:
    """What is to be told, in the order of versions. One by one while it is little, else only the newest of each
    topic: an event carries the route as it is now, so all before it would say the same.
    """

    def __init__(self) -> None:
        self._told: list[tuple[EventId, str]] = []
        self._limit = ONE_BY_ONE

    def add(self, topic: str, event_id: EventId) -> None:
        self._told.append((event_id, topic))
        if len(self._told) > self._limit:
            newest = {topic: event_id for event_id, topic in self._told}
            self._told = [(event_id, topic) for topic, event_id in newest.items()]
            self._limit = max(ONE_BY_ONE, 2 * len(self._told))

    def events(self) -> Iterator[RouteEvent]:
        told = sorted(self._told)
        for number, (event_id, topic) in enumerate(told, 1):
            is_last = number == len(told) or told[number][0] != event_id
            yield RouteEvent(topic, *event_id, last=is_last)


class Replay:
    def __init__(
        self,
        read_changes: ReadChanges,
        *,
        topics_of: Callable[[str], Collection[str]],
        all_topics: Callable[[], Collection[str]],
        topic: str | None,
    ) -> None:
        self._read_changes = read_changes
        self._topics_of = topics_of
        self._all_topics = all_topics
        self._topic = topic

    async def between(self, seen: EventId, upto: int) -> AsyncIterator[RouteEvent]:
        """Every route that may have changed after `seen`, up to version `upto`."""
        found = await self._read_changes(seen.version - 1, 1)
        if not found or EventId(found[0].ms, found[0].version) != seen:
            raise GapError(f"entry {seen} is not in the history")
        removed = await self._topics_of_removed(seen, upto)
        told = Told()
        async for change in self._after(seen.version, upto):
            for topic in self._touched(change, removed):
                told.add(topic, EventId(change.ms, change.version))
        for event in told.events():
            yield event

    async def _after(self, version: int, upto: int) -> AsyncIterator[Change]:
        """Not beyond `upto`: of a later change this worker has not seen the effect."""
        while version < upto:
            found = await self._read_changes(version, min(PAGE, upto - version))
            if not found or found[0].version != version + 1:
                raise GapError(f"entries after version {version} were trimmed")
            for change in found:
                yield change
            version = found[-1].version

    def _touched(self, change: Change, removed: dict[str, set[str]]) -> Collection[str]:
        if change.kind in BASELINE_KINDS:
            return ()
        if self._topic is not None:
            return (self._topic,) if self._may_touch(change, self._topic) else ()
        return self._all_touched(change, removed)

    def _may_touch(self, change: Change, topic: str) -> bool:
        if change.kind in _OF_A_GROUP:
            # Whether the topic was on that broker *then* is not known; a superfluous event is cheaper than
            # asking.
            return True
        return topic in self._all_touched(change, {})

    def _all_touched(self, change: Change, removed: dict[str, set[str]]) -> Collection[str]:
        named = named_topics(change)
        if change.kind in _OF_A_GROUP:
            broker = str(change.fields.get("broker", ""))
            return named | set(self._topics_of(broker)) | removed.get(broker, set())
        if change.kind in _KV:
            is_order = change.fields.get("namespace") == ORDER_TOPIC_NAMESPACE
            return {str(change.fields.get("key"))} if is_order else ()
        if change.kind == "settings-changed":
            return set(self._all_topics())
        return named

    async def _topics_of_removed(self, seen: EventId, upto: int) -> dict[str, set[str]]:
        """For a watch of all topics: what the groups had that the stretch removed."""
        if self._topic is not None:
            return {}
        found = [removed_group(change) async for change in self._after(seen.version, upto)]
        brokers = {broker for broker in found if broker is not None}
        return await self._look_back(brokers, seen, upto) if brokers else {}

    async def _look_back(self, brokers: set[str], seen: EventId, upto: int) -> dict[str, set[str]]:
        start = max(0, seen.version - LOOK_BACK)
        topics: dict[str, set[str]] = {broker: set() for broker in brokers}
        whole = dict.fromkeys(brokers, start == 0)
        async for change in self._after(start, upto):
            broker = str(change.fields.get("broker", ""))
            if broker not in brokers:
                continue
            topics[broker] |= named_topics(change)
            if removed_group(change) is None:
                continue
            if change.version <= seen.version:
                # Before the stretch: a fresh start, from which everything it had since is known.
                topics[broker], whole[broker] = set(), True
            elif not whole[broker]:
                raise GapError(f"what {broker!r} had is not in the history any more")
        return topics


def named_topics(change: Change) -> set[str]:
    return {str(item["t"]) for item in change.fields.get("queues") or ()}


def removed_group(change: Change) -> str | None:
    return str(change.fields["broker"]) if change.fields.get("group_removed") else None
