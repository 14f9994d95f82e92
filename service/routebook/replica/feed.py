"""How far a table is behind what its worker knows to be in the store.

Only this worker's clock is used, so the time is how long a change has been known here and not shown: by reading the
history, and by looking, once a second, at the version that the store is at.

Following the history of the store, entry by entry, and noticing when it is not the history we know.

Invariant: an entry is applied only when it is the next one of the history we verified on the connections in
use now. Whatever casts doubt (connections made anew, another identity or history, a version that went back)
is looked into before anything more is applied; until that is settled, readers go on seeing the old table.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from routebook.errors import StoreError, StoreUnavailableError
from routebook.replica.contents import Contents
from routebook.replica.load import CHANGES_PER_READ, GapError, Position, check_contiguous, load, reread
from routebook.store.history import Change, first_change, has_change, read_changes
from routebook.store.namespace import Namespace
from routebook.store.reads import read_history_head
from routebook.store.recovery import begin_history
from routebook.store.workers import HistoryHead


class _Known(NamedTuple):
    version: int
    since: float


class Lag:
    def __init__(self) -> None:
        self._oldest: _Known | None = None
        """Not reached yet. With `_newest` alone, a table that is always a little behind would look ever older."""
        self._newest: _Known | None = None

    def heard_of(self, version: int, shown: int, now: float) -> None:
        """The store is at that version."""
        if version <= shown or (self._newest and version <= self._newest.version):
            return
        self._newest = _Known(version, now)
        self._oldest = self._oldest or self._newest

    def reached(self, version: int) -> None:
        """It is shown."""
        if self._oldest and version >= self._oldest.version:
            self._oldest = self._newest if self._newest and self._newest.version > version else None
        if self._oldest is None:
            self._newest = None

    def begin_anew(self) -> None:
        """Another table, perhaps of another history, in which the same numbers mean something else."""
        self._oldest = self._newest = None

    def changes(self, shown: int) -> int:
        return max(self._newest.version - shown, 0) if self._newest else 0

    def seconds(self, now: float) -> float:
        return now - self._oldest.since if self._oldest else 0.0


_log = logging.getLogger(__name__)

WAIT_MS: Final = 1_000
"""How long a read waits for something new: also how often the heads are looked at when nothing happens."""
IN_TOUCH_MS: Final = 2 * WAIT_MS + 500
"""Silence of this length is not one of the history but one of the store."""
MAX_COALESCED_CHANGES: Final = 2_000
MAX_COALESCED_TOPICS: Final = 5_000
"""A burst is applied in one step: not larger than what keeps the event loop busy for some 20 ms."""
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
LOADS_IN_A_ROW: Final = 3
"""A history that moves on faster than we load it is loaded again at once, but not for ever."""


@dataclass(slots=True)
class FeedCounts:
    """Since the start, for metrics."""

    changes: int = 0
    loads: int = 0
    gaps: int = 0
    lost_tails: int = 0
    losses: int = 0
    """Changes of identity or history that were met."""
    reconnects: int = 0


class Audience(Protocol):
    """Who reads what the feed keeps current. All are called in the same step in which the shown table changes."""

    def foresee(self, changes: Sequence[Change]) -> None:
        """These are about to be applied; the table is still as it was. Not told of a load: nobody knows its changes."""

    def drop(self, topics: set[str]) -> None:
        """Encoded routes of these are no longer good."""

    def tell(self, topics: set[str], position: Position) -> None:
        """These routes may differ, all of them since that position."""


class Feed:
    """Of one replica. `run` until cancelled; everything else is for the replica to ask."""

    def __init__(
        self,
        namespace: Namespace,
        contents: Contents,
        audience: Audience,
        *,
        recovery_window_ms: Callable[[], int],
    ) -> None:
        self.counts = FeedCounts()
        self._namespace = namespace
        self._contents = contents
        self._audience = audience
        self._recovery_window_ms = recovery_window_ms
        self._epoch: int | None = None
        self._follows = False
        self._doubted = False
        self._failing = False
        self._last_contact = time.monotonic()
        self._heads_read = 0.0
        self._lag = Lag()

    # -- what the replica asks

    @property
    def follows(self) -> bool:
        """The table shown is the store's, as far as one can know."""
        return self._follows and not self._doubted and self._is_connected_as_verified()

    def stale_ms(self) -> int:
        """0 while in touch. A load may take long: there the client knows that the store answers."""
        age_ms = int((time.monotonic() - self._last_contact) * 1000)
        if self._failing:
            return age_ms
        age_ms = min(age_ms, self._namespace.client.contact_age_ms())
        return age_ms if age_ms > IN_TOUCH_MS else 0

    def lag(self) -> tuple[int, float]:
        """Changes that are known to be in the store and not shown, and for how many seconds."""
        shown = self._contents.position.version
        return self._lag.changes(shown), self._lag.seconds(time.monotonic())

    def doubt(self) -> None:
        """Somebody was told something by the store that our history does not explain."""
        self._doubted = True

    def check_history_head(self, head: HistoryHead) -> None:
        """Somebody has seen these. They may be older than what we have, which alone is no reason for doubt: we
        look ourselves.
        """
        position = self._contents.position
        if not position.is_same_history(head):
            self._doubted = True
        elif head.version < position.version:
            self._heads_read = 0.0
        else:
            self._lag.heard_of(head.version, position.version, time.monotonic())

    async def run(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            try:
                await self._advance()
            except Exception as error:  # whatever it is: a feed that ended would leave a worker that never learns
                self._note_failure(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                self._note_contact()
                pause = FIRST_PAUSE_S

    def _note_failure(self, error: Exception) -> None:
        if not isinstance(error, StoreUnavailableError):
            # An entry that cannot be read, say: what stands in the tables is enough to go on from.
            self._follows = False
        if not self._failing:
            trace = None if isinstance(error, StoreError) else error
            _log.warning("The history cannot be followed; answers come from memory. %s", error, exc_info=trace)
        self._failing = True

    def _note_contact(self) -> None:
        if self._failing:
            _log.info("The history is followed again.")
        self._failing = False
        now = time.monotonic()
        recovery = self._contents.recovery
        if recovery:
            recovery.spend(int(min(now - self._last_contact, IN_TOUCH_MS / 1000) * 1000))
        self._last_contact = now

    # -- one step

    async def _advance(self) -> None:
        if not self._follows:
            await self._load_until_it_holds()
        elif self._doubted or not self._is_connected_as_verified():
            await self._verify()
        else:
            await self._follow()

    def _is_connected_as_verified(self) -> bool:
        return self._epoch == self._namespace.client.epoch

    async def _follow(self) -> None:
        try:
            changes = await self._read_waiting(WAIT_MS)
            if changes and self._is_connected_as_verified():
                await self._take(changes)
        except GapError as gap:
            self._meet_gap(gap)
            return
        if time.monotonic() - self._heads_read >= WAIT_MS / 1000:
            await self._look_at_heads()
        await self._end_recovery_when_due()

    async def _take(self, changes: list[Change]) -> None:
        position = self._contents.position
        check_contiguous(changes, position)
        self._lag.heard_of(changes[-1].version, position.version, time.monotonic())
        read = await reread(self._namespace, changes)
        if not self._is_connected_as_verified():
            return  # what was read may be another store's
        self.counts.changes += len(changes)
        self._audience.foresee(changes)
        topics = self._contents.apply(changes, read)
        self._lag.reached(self._contents.position.version)
        self._audience.tell(topics, self._contents.position)

    async def _read_waiting(self, block_ms: int) -> list[Change]:
        """All that waits, within bounds. Where the bound cuts a change written in several parts is no matter: of a
        group that has moved on, everything is read.
        """
        changes = await self._read_after(None, block_ms)
        portion = changes
        while len(portion) == CHANGES_PER_READ and not _is_much(changes):
            portion = await self._read_after(changes[-1], None)
            changes += portion
        return changes

    async def _read_after(self, last: Change | None, block_ms: int | None) -> list[Change]:
        position = self._contents.position
        after = (last.ms, last.version) if last else (position.ms, position.version)
        return await read_changes(self._namespace, after, count=CHANGES_PER_READ, block_ms=block_ms)

    async def _look_at_heads(self) -> None:
        """A store that was emptied keeps its connections and says nothing: only this shows it."""
        position = self._contents.position
        head = await read_history_head(self._namespace)
        self._heads_read = time.monotonic()
        if not position.is_same_history(head) or head.version < position.version:
            self._doubted = True
        elif head.version > position.version and not await self._read_after(None, None):
            self._meet_gap(GapError(f"version {head.version} is there, but no entry after {position.version}"))

    def _meet_gap(self, gap: GapError) -> None:
        _log.warning("The history has a gap (%s): the table is loaded anew.", gap)
        self.counts.gaps += 1
        self._follows = False

    async def _end_recovery_when_due(self) -> None:
        recovery = self._contents.recovery
        if recovery and recovery.is_over(self._contents.table):
            _log.info("Recovery has ended.", extra={"seats_given_up": recovery.state.awaited_seats})
            await self._show(self._contents.end_recovery(), self._contents.position)

    # -- in doubt

    async def _verify(self) -> None:
        """Are these connections to the store whose history we know, and does it still have our last entry?"""
        epoch = self._namespace.client.epoch
        head = await read_history_head(self._namespace)
        position = self._contents.position
        if not position.is_same_history(head):
            self._follows = False
        elif not await self._has_our_entry(head, position):
            await self._meet_lost_tail(position)
        if epoch == self._namespace.client.epoch:
            self.counts.reconnects += self._epoch != epoch
            self._epoch = epoch
            self._doubted = False

    async def _has_our_entry(self, head: HistoryHead, position: Position) -> bool:
        """A trimmed entry is no lost one: then the versions that are left must lie behind ours."""
        if head.version < position.version:
            return False
        if position.version == 0 or (head.version, head.ms) == (position.version, position.ms):
            return True
        if head.version == position.version:
            return False
        if await has_change(self._namespace, position.ms, position.version):
            return True
        first = await first_change(self._namespace)
        return first is None or first[1] > position.version

    async def _meet_lost_tail(self, position: Position) -> None:
        _log.warning("The store has lost changes that were seen here: a new history begins.")
        self.counts.lost_tails += 1
        self._follows = False
        await begin_history(self._namespace, history=position.history)

    # -- loading anew

    async def _load_until_it_holds(self) -> None:
        for _ in range(LOADS_IN_A_ROW):
            epoch = self._namespace.client.epoch
            try:
                table, position = await load(self._namespace)
            except GapError as gap:
                _log.info("The history moved on while it was loaded (%s).", gap)
                continue
            head = await read_history_head(self._namespace)
            if epoch == self._namespace.client.epoch and position.is_same_history(head):
                break
        else:
            return
        self._note_load(position)
        steps = self._contents.replace(table, position, self._recovery_window_ms())
        await self._show(steps, position)
        self._lag.begin_anew()
        self._epoch, self._follows, self._doubted = epoch, True, False

    def _note_load(self, position: Position) -> None:
        known = self._contents.position
        self.counts.loads += 1
        if self._contents.is_complete and (known.identity, known.history) != (position.identity, position.history):
            self.counts.losses += 1
            _log.warning("The store has another history than before: what it lacks is carried over for a while.")

    async def _show(self, steps: Iterator[set[str]], position: Position) -> None:
        """Readers are served between the steps, and told when all is done."""
        changed: set[str] = set()
        for topics in steps:
            self._audience.drop(topics)
            changed |= topics
            await asyncio.sleep(0)
        self._audience.tell(changed, position)


def _is_much(changes: list[Change]) -> bool:
    if len(changes) >= MAX_COALESCED_CHANGES:
        return True
    return sum(len(change.fields.get("queues", ())) for change in changes) >= MAX_COALESCED_TOPICS
