"""Keeps the table of a replica current by following the store's history, entry by entry.

Invariant: an entry is applied only if it is the next one of a history that was verified on the connections in use now.
Whatever casts doubt on that (new connections, another identity or history, a version that went back) is checked before
anything else is applied. Until the check is done, readers keep seeing the old table.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from routebook.errors import StoreError, StoreUnavailableError, StoreUnsuitableError
from routebook.replica.load import (
    CHANGES_PER_READ,
    GapError,
    Position,
    changed_topics,
    check_contiguous,
    in_steps,
    load,
    reread,
)
from routebook.replica.recovery import Recovery
from routebook.replica.table import Table
from routebook.settings import LiveSettings
from routebook.store.history import Change, find_change, first_change, read_changes
from routebook.store.namespace import Namespace
from routebook.store.reads import read_history_head
from routebook.store.recovery import begin_history
from routebook.store.workers import HistoryHead

_log = logging.getLogger(__name__)

WAIT_MS: Final = 1_000
"""How long a read waits for new entries; also how often the head of the history is read when there are none."""
IN_TOUCH_MS: Final = 2 * WAIT_MS + 500
"""When the store has been silent for longer, the store is out of reach: an idle history would not explain it."""
MAX_BURST_CHANGES: Final = 2_000
"""More changes than this are not read before some of them are applied."""
CHANGES_PER_PORTION: Final = 16
TOPICS_PER_PORTION: Final = 5_000
"""A burst is applied in portions of some milliseconds each."""
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
LOADS_IN_A_ROW: Final = 3
"""A load that the history overtook is repeated at once, this often."""
LEFT_HISTORIES: Final = 16

UNLOADED: Final = Position(identity="", history="", ms=0, version=0)


class _StoreVersion(NamedTuple):
    version: int
    since: float


class Lag:
    """How far the table is behind the versions that this worker knows to be in the store.

    A version is known from reading the history, and from the head of the history, which is read once a second. Only the
    worker's own clock is used: the lag is the time for which a change has been known here without being shown.
    """

    def __init__(self) -> None:
        self._oldest: _StoreVersion | None = None
        """The oldest version not shown yet. With the newest alone, a table that is always slightly behind would seem
        to fall further and further behind.
        """
        self._newest: _StoreVersion | None = None

    def note_stored(self, version: int, shown: int, now: float) -> None:
        if version <= shown or (self._newest and version <= self._newest.version):
            return
        self._newest = _StoreVersion(version, now)
        self._oldest = self._oldest or self._newest

    def note_shown(self, version: int) -> None:
        if self._oldest and version >= self._oldest.version:
            self._oldest = self._newest if self._newest and self._newest.version > version else None
        if self._oldest is None:
            self._newest = None

    def reset(self) -> None:
        """After a load, perhaps of another history, in which the same versions mean something else."""
        self._oldest = self._newest = None

    def changes(self, shown: int) -> int:
        return max(self._newest.version - shown, 0) if self._newest else 0

    def seconds(self, now: float) -> float:
        return now - self._oldest.since if self._oldest else 0.0


@dataclass(slots=True)
class FeedCounts:
    """Since the start, for metrics."""

    changes: int = 0
    loads: int = 0
    gaps: int = 0
    lost_tails: int = 0
    losses: int = 0
    """Changes of the store's identity or history."""
    reconnects: int = 0


class Feed:
    """A table that follows the store. `Replica` adds what readers need, by overriding the three methods below.

    `table` is what the store holds, as far as its history has been followed. `view` is what readers are shown. They are
    one object, except during a recovery after the store lost data.
    """

    def __init__(self, namespace: Namespace, live_settings: LiveSettings) -> None:
        self.table = Table()
        self.view = self.table
        self.position = UNLOADED
        self._newest: Change | None = None
        """The entry at `position`; None if it is not known."""
        self._left: deque[str] = deque(maxlen=LEFT_HISTORIES)
        """The histories that were followed before, or have lost changes."""
        self._is_unverified = False
        """The last entry applied here has been trimmed since, so it is unknown whether the store had it."""
        self.recovery: Recovery | None = None
        self.counts = FeedCounts()
        self._namespace = namespace
        self._live_settings = live_settings
        self._lag = Lag()
        self._epoch: int | None = None
        """The epoch of the connections on which the history was verified."""
        self._follows = False
        self._is_doubtful = False
        self._catching_up_to = 0
        """The newest version in the store when its connections were verified: until it is shown here, a topic that was
        registered meanwhile would be reported as unknown.
        """
        self._is_load_requested = False
        self._is_failing = False
        self._last_contact = time.monotonic()
        self._head_read = 0.0

    # -- called in the same step of the event loop in which the view changes

    def before_apply(self, changes: Sequence[Change]) -> None:
        """`changes` are about to be applied to the table. Not called for a load, whose changes are unknown."""

    def invalidate(self, topics: set[str]) -> None:
        """Encoded routes of these topics are no longer right."""

    def publish(self, topics: set[str]) -> None:
        """The view stands at a new position, and the routes of these topics may have changed."""

    def verified(self) -> None:
        """The table was compared with the store on the present connections."""

    # -- state

    @property
    def version(self) -> int:
        return self.position.version

    @property
    def history(self) -> str:
        return self.position.history

    @property
    def complete(self) -> bool:
        """A whole table has been loaded at least once."""
        return self.position is not UNLOADED

    @property
    def current(self) -> bool:
        """Complete, in touch with the store and following its history: an object that is not here does not exist.

        Only a read of the history counts as touch here. Another reply shows that the store can be reached, but not what
        it has: a worker that was suspended finds replies that have waited for it, and reads the history after them.
        """
        follows = self._follows and not self._is_doubtful and self._is_connected_as_verified()
        has_read = time.monotonic() - self._last_contact <= IN_TOUCH_MS / 1000
        return self.complete and follows and has_read and self.version >= self._catching_up_to and self.stale_ms() == 0

    @property
    def verified_epoch(self) -> int | None:
        """The epoch of the connections, if the table was compared with the store on them. Until then the same history
        and the same revision of a group prove nothing: after a failover, two primaries have counted the same versions.
        """
        return self._epoch if self._is_connected_as_verified() and not self._is_unverified else None

    @property
    def is_recovering(self) -> bool:
        """Readers are shown objects that the store has lost. Their deletion has to be recorded although the store does
        not find them.
        """
        return self.recovery is not None

    def stale_ms(self) -> int:
        """Age of the last contact with the store; 0 while in touch. During a long load, the client's contact counts. A
        primary that is cut off from its replicas does not count as the store.
        """
        age_ms = int((time.monotonic() - self._last_contact) * 1000)
        if self._is_failing:
            return age_ms
        client = self._namespace.client
        age_ms = max(min(age_ms, client.answer_age_ms()), client.cut_off_ms())
        return age_ms if age_ms > IN_TOUCH_MS else 0

    def lag(self) -> tuple[int, float]:
        """Number of changes that are known to be in the store and not shown, and for how many seconds."""
        return self._lag.changes(self.version), self._lag.seconds(time.monotonic())

    # -- what others have learned about the store

    def doubt(self) -> None:
        """A reply of the store does not fit the history that is followed."""
        self._is_doubtful = True

    def load_again(self) -> None:
        """An object in the store differs from this table. Readers keep the old table until the new one is loaded."""
        self._is_load_requested = True

    def check_history_head(self, head: HistoryHead) -> None:
        """The head as another part of this worker has read it. It may be older than `position`, which alone is no
        reason for doubt: then the feed reads the head itself.
        """
        if not self.position.is_same_history(head):
            self._is_doubtful = True
        elif head.version < self.version:
            self._head_read = 0.0
        else:
            self._lag.note_stored(head.version, self.version, time.monotonic())

    # -- following

    async def run(self) -> None:
        """Follows the store until cancelled, through every failure."""
        pause = FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                await self._advance()
            except Exception as error:  # of any kind: without its feed, a worker would serve an ever older table
                self._note_failure(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                self._note_contact(began)
                pause = FIRST_PAUSE_S

    def _note_failure(self, error: Exception) -> None:
        if not isinstance(error, StoreUnavailableError):
            # For instance an entry that cannot be read. The tables in the store are enough to continue from.
            self._follows = False
        if not self._is_failing:
            trace = None if isinstance(error, StoreError) else error
            _log.warning("The history cannot be followed; answers come from memory. %s", error, exc_info=trace)
        self._is_failing = True

    def _note_contact(self, began: float) -> None:
        """A step that took longer than steps do shows what the store had when it began: this process was suspended."""
        if self._is_failing:
            _log.info("The history is followed again.")
        self._is_failing = False
        now = time.monotonic()
        if self.recovery:
            self.recovery.spend(int(min(now - self._last_contact, IN_TOUCH_MS / 1000) * 1000))
        self._last_contact = now if now - began <= IN_TOUCH_MS / 1000 else began

    async def _advance(self) -> None:
        if not self._follows or self._is_load_requested:
            await self._load_again()
        elif self._is_doubtful or not self._is_connected_as_verified():
            await self._verify()
        else:
            await self._follow()

    def _is_connected_as_verified(self) -> bool:
        return self._epoch == self._namespace.client.epoch

    async def _follow(self) -> None:
        try:
            changes = deque(await self._read_new_changes())
            if changes:
                self._lag.note_stored(changes[-1].version, self.version, time.monotonic())
            for portion in _portions(changes):
                if self._is_connected_as_verified():
                    await self._apply(portion)
        except GapError as gap:
            self._reload_after(gap)
            return
        if time.monotonic() - self._head_read >= WAIT_MS / 1000:
            await self._compare_with_head()
        if self.recovery and self.recovery.is_over(self.table):
            _log.info("Recovery has ended.", extra={"seats_given_up": self.recovery.state.awaited_seats})
            await self._show(self.end_recovery())

    async def _read_new_changes(self) -> list[Change]:
        """Waits for changes and returns all of them, within bounds. The bound may split a change that has several
        entries: a group that has changed since is read as a whole (`load.reread`).
        """
        changes = await self._read_after(None, WAIT_MS)
        portion = changes
        while len(portion) == CHANGES_PER_READ and not _is_large(changes):
            portion = await self._read_after(changes[-1], None)
            changes += portion
        return changes

    async def _read_after(self, last: Change | None, block_ms: int | None) -> list[Change]:
        after = (last.ms, last.version) if last else (self.position.ms, self.version)
        return await read_changes(self._namespace, after, count=CHANGES_PER_READ, block_ms=block_ms)

    async def _apply(self, changes: list[Change]) -> None:
        check_contiguous(changes, self.position)
        read = await reread(self._namespace, changes)
        # A recovery changes two tables, one depending on the other, so it works everything out in the last step.
        groups = None if self.recovery else await in_steps(self.table.work_out(read.groups))
        if not self._is_connected_as_verified():
            return  # the objects may have been read from another store
        self.counts.changes += len(changes)
        self.before_apply(changes)
        topics = self.recovery.apply(self.table, changes, read) if self.recovery else read.apply_to(self.table, groups)
        self.position, self._newest = self.position.after(changes[-1]), changes[-1]
        self._lag.note_shown(self.version)
        self.publish(topics)

    async def _compare_with_head(self) -> None:
        """A store that was emptied keeps its connections and sends nothing: only its head shows what happened."""
        head = await read_history_head(self._namespace)
        self._head_read = time.monotonic()
        if not self.position.is_same_history(head) or head.version < self.version:
            self._is_doubtful = True
        elif head.version > self.version and not await self._read_after(None, None):
            self._reload_after(GapError(f"version {head.version} is there, but no entry after {self.version}"))

    def _reload_after(self, gap: GapError) -> None:
        _log.warning("The history has a gap (%s): the table is loaded again.", gap)
        self.counts.gaps += 1
        self._follows = False

    # -- verifying

    async def _verify(self) -> None:
        """Do these connections lead to the store whose history is followed, and has it the last entry applied here?"""
        epoch = self._namespace.client.epoch
        head = await read_history_head(self._namespace)
        if not self.position.is_same_history(head):
            self._follows = False
        elif not await self._is_last_entry_stored(head):
            await self._begin_history_after_loss()
        elif self._is_unverified:
            _log.warning("The history was trimmed beyond what was read here: the table is loaded again.")
            self.counts.gaps += 1
            self._follows = False
        if epoch == self._namespace.client.epoch:
            self.counts.reconnects += self._epoch != epoch
            self._catching_up_to = head.version
            self._epoch = epoch
            self._is_doubtful = False
            self.verified()

    async def _begin_history_after_loss(self) -> None:
        """Its new name may be lost as well. Then the old one, which is in `_left`, has to be replaced once more."""
        _log.warning("The store has lost changes that were seen here: a new history begins.")
        self.counts.lost_tails += 1
        self._follows = False
        self._left.append(self.history)
        await begin_history(self._namespace, history=self.history)

    async def _is_last_entry_stored(self, head: HistoryHead) -> bool:
        """An entry that was trimmed counts as stored, although that is not certain (`_is_unverified`). Then all
        remaining versions are greater than ours.

        The contents are compared too: while the store's clock is behind the last entry, new entries get its time, so an
        id that was lost may be used again.
        """
        position = self.position
        self._is_unverified = False
        if head.version < position.version:
            return False
        if position.version == 0:
            return True
        if stored := await find_change(self._namespace, position.ms, position.version):
            return self._newest is None or stored.fields == self._newest.fields
        if head.version == position.version:
            return head.ms == position.ms
        first = await first_change(self._namespace)
        self._is_unverified = first is None or first[1] > position.version
        return self._is_unverified

    # -- loading

    async def _load_again(self) -> None:
        for _ in range(LOADS_IN_A_ROW):
            epoch = self._namespace.client.epoch
            if self.complete and epoch != self._epoch:
                await self._verify()
            try:
                table, position = await load(self._namespace)
            except GapError as gap:
                _log.info("The history moved on while it was loaded (%s).", gap)
                continue
            if position.history in self._left:
                # Its successor was lost with the changes that this one lacks, and their versions are used again.
                _log.warning("The store has returned to a history that was left: a new one begins.")
                await begin_history(self._namespace, history=position.history)
                continue
            newest = await self._entry_at(position)
            head = await read_history_head(self._namespace)
            if epoch == self._namespace.client.epoch and position.is_same_history(head):
                break
        else:
            return
        self.counts.loads += 1
        if self.complete and not self._is_same_history(position):
            self.counts.losses += 1
            self._left.append(self.history)
            _log.warning("The store has another history than before: objects that it lacks are shown for a while.")
        await self._show(self.replace(table, position))
        self._newest = newest
        self._lag.reset()
        self._epoch, self._follows, self._is_doubtful, self._is_unverified = epoch, True, False, False
        self._is_load_requested, self._catching_up_to = False, 0
        self.verified()

    async def _entry_at(self, position: Position) -> Change | None:
        try:
            return await find_change(self._namespace, position.ms, position.version)
        except StoreUnsuitableError:
            return None  # it cannot be read; the tables in the store are enough to continue from

    async def _show(self, steps: Iterator[set[str]]) -> None:
        """Runs the steps of a swap. Readers are served in between, and the change is published at the end."""
        changed: set[str] = set()
        for topics in steps:
            self.invalidate(topics)
            changed |= topics
            await asyncio.sleep(0)
        self.publish(changed)

    # -- swapping whole tables: generators of steps, each of which leaves the view consistent

    def replace(self, table: Table, position: Position) -> Iterator[set[str]]:
        """Takes a loaded table. If it belongs to another history, what was shown is carried over."""
        same_history = self._is_same_history(position) and not self._is_unverified
        if not self.complete or (same_history and self.recovery is None):
            yield from self._swap(table, position)
            return
        before = self.table if same_history else Table()
        if self.recovery is None or not same_history:
            self.recovery = Recovery(self.view, self._live_settings.current.recovery_window_ms)
        yield from self.recovery.rebase(before, table)
        self.table, self.position = table, position

    def end_recovery(self) -> Iterator[set[str]]:
        """From the last step on, readers see the store's table and nothing that was carried over."""
        return self._swap(self.table, self.position)

    def _swap(self, table: Table, position: Position) -> Iterator[set[str]]:
        changed: set[str] = set()
        for topics in changed_topics(self.view, table):
            changed |= topics
            yield set()
        self.table, self.view, self.position = table, table, position
        self.recovery = None
        yield changed

    def _is_same_history(self, position: Position) -> bool:
        return (position.identity, position.history) == (self.position.identity, self.position.history)


def _is_large(changes: list[Change]) -> bool:
    return len(changes) >= MAX_BURST_CHANGES or _topics_in(changes) >= TOPICS_PER_PORTION


def _topics_in(changes: Iterable[Change]) -> int:
    return sum(len(change.fields.get("queues", ())) for change in changes)


def _portions(changes: deque[Change]) -> Iterator[list[Change]]:
    """To log changes and to apply them is one step that no lookup interrupts, so a burst is applied in portions.
    Entries of one group that follow each other stay together, because they are usually one registration.

    Changes are taken out of `changes`, because to free all of a large burst at once would be a long step too.
    """
    portion: list[Change] = []
    topics = 0
    while changes:
        change = changes.popleft()
        is_full = len(portion) >= CHANGES_PER_PORTION or topics >= TOPICS_PER_PORTION
        if len(portion) >= CHANGES_PER_READ or (is_full and change.broker != portion[-1].broker):
            yield portion
            portion, topics = [], 0
        portion.append(change)
        topics += _topics_in([change])
    if portion:
        yield portion
