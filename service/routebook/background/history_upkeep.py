"""What the leader does for the history: trims it, and now and then writes the whole table into it, a baseline.

A baseline is as large as the table. It is written part by part, each a script that blocks the store for a moment, and
between the parts the leader does its other work.
"""

import logging
import time
from collections.abc import AsyncGenerator
from typing import Final

from routebook.errors import StoreError
from routebook.model.names import Caller
from routebook.observability.metrics import HistoryFigures, Metrics
from routebook.registry.status import active_readers, history_bound
from routebook.replica.replica import Replica
from routebook.settings import LiveSettings, Settings
from routebook.store.history import (
    BaselineState,
    Cause,
    FencedError,
    HistoryState,
    read_baseline_state,
    read_history_state,
    request_baseline,
    trim_history,
    write_baseline,
)
from routebook.store.namespace import Namespace

_log = logging.getLogger(__name__)

TRIM_PERIOD_S: Final = 60.0
CHECK_PERIOD_S: Final = 5.0
"""How soon a baseline begins after it was requested."""
PAUSE_AFTER_FAILURE_S: Final = 60.0
STEP_S: Final = 0.05
"""Time for one part of a baseline, before the leader does its other work and the store serves others."""
BASELINE_PERIOD_MS: Final = 86_400_000
AFTER_A_LOSS_MS: Final = 3_600_000
"""Time between a baseline and the next one for readers that miss entries. Otherwise a table larger than the allowed
history would be written again and again.
"""


class HistoryUpkeep:
    def __init__(
        self, namespace: Namespace, replica: Replica, live: LiveSettings, worker: str, metrics: Metrics
    ) -> None:
        self._namespace = namespace
        self._replica = replica
        self._live = live
        self._caller = Caller(worker)
        self._metrics = metrics
        self._next_trim = 0.0
        self._next_check = 0.0
        self._baseline: AsyncGenerator[int] | None = None
        self._lease = ""
        self._known_history = ""
        self._known_since = 0.0
        self._reported_readers: frozenset[str] = frozenset()

    @property
    def is_busy(self) -> bool:
        """A baseline is being written."""
        return self._baseline is not None

    async def work(self, lease: str) -> None:
        """Does what is due, for a moment. FencedError: another worker leads."""
        now = time.monotonic()
        if now >= self._next_trim:
            self._next_trim = now + TRIM_PERIOD_S
            await self.trim()
        if self._baseline is not None and self._lease != lease:
            await self._abandon_baseline()
        if self._baseline is None and now >= self._next_check:
            self._next_check = now + CHECK_PERIOD_S
            cause = self._due_baseline(await read_baseline_state(self._namespace), now)
            if cause:
                _log.info("A baseline of the table is written into the history (%s).", cause)
                self._lease = lease
                self._baseline = write_baseline(self._namespace, lease, caller=self._caller, cause=cause)
        if self._baseline is not None:
            await self._continue_baseline(self._baseline, until=now + STEP_S)

    # -- trimming

    async def trim(self) -> None:
        settings = self._live.current
        state = await read_history_state(self._namespace)
        self._report_unreadable_readers(state)
        bound = history_bound(state, settings)
        readers = active_readers(state, settings.reader_expiry_ms)
        if any(reader.version + 1 < bound.below for reader in readers):
            await self._request_baseline_before_loss(bound.below)
        trimmed = await trim_history(self._namespace, state, bound.below)
        self._metrics.history(_figures(state, trimmed, settings))
        first = state.first + trimmed
        lost = first - max(bound.keep, state.first)
        if lost <= 0:
            return
        self._metrics.history_lost(lost)
        missed_by = [reader.name for reader in readers if reader.version + 1 < first]
        _log.warning(
            "%d changes were trimmed earlier than intended: %s is reached. %s.",
            lost,
            bound.reason,
            f"Missed by {', '.join(missed_by)}" if missed_by else "No reader misses them",
        )

    async def _request_baseline_before_loss(self, below: int) -> None:
        """A reader that misses entries can continue only from a baseline. The request waits in the store until the last
        one is old enough (`_due_baseline`): the reader goes on meanwhile, and nothing shows later that it needs one.

        It is made before the entries are removed, because this worker may be cut off at any moment, and the former
        leader may trim at the same time: afterwards, neither may know that the last baseline is gone.
        """
        if (await read_baseline_state(self._namespace)).last_begin < below:
            await request_baseline(self._namespace, "trimmed")

    def _report_unreadable_readers(self, state: HistoryState) -> None:
        unreadable = frozenset(state.unreadable_readers)
        if unreadable - self._reported_readers:
            key, names = self._namespace.keys.readers, ", ".join(sorted(unreadable))
            _log.warning("%s holds values that are no position in the history, for the readers %s.", key, names)
        self._reported_readers = unreadable

    # -- baselines

    def _due_baseline(self, state: BaselineState, now: float) -> Cause | None:
        """None during a recovery, and before this worker has noticed that the store lost its data: objects that are not
        back yet would seem to be deleted.
        """
        if self._replica.history != self._known_history or self._replica.is_recovering:
            self._known_history, self._known_since = self._replica.history, now
        if self._replica.is_recovering or self._replica.version == 0 or state.history != self._replica.history:
            return None
        # A baseline in the future is no recent one: the store's clock was set back.
        is_recent = 0 <= state.now_ms - state.last_ms < AFTER_A_LOSS_MS
        if state.requested and not (state.requested == "trimmed" and is_recent):
            return state.requested
        if state.of_history != self._replica.history:
            is_stable = (now - self._known_since) * 1000 >= self._live.current.recovery_window_ms
            return "new-history" if is_stable else None
        return "daily" if state.now_ms - state.last_ms >= BASELINE_PERIOD_MS else None

    async def _continue_baseline(self, baseline: AsyncGenerator[int], until: float) -> None:
        try:
            async for _ in baseline:
                if time.monotonic() >= until:
                    return
            self._baseline = None
        except (FencedError, StoreError):
            self._next_check = time.monotonic() + PAUSE_AFTER_FAILURE_S
            await self._abandon_baseline()
            raise

    async def _abandon_baseline(self) -> None:
        """A later one starts over: readers ignore a baseline without an end."""
        if self._baseline is not None:
            await self._baseline.aclose()
            self._baseline = None


def _figures(state: HistoryState, trimmed: int, settings: Settings) -> HistoryFigures:
    readers = active_readers(state, settings.reader_expiry_ms)
    # Before trimming, to show how near the limits are: afterwards they are never exceeded.
    used = max(state.entries / settings.history_hard_limit, state.kept_bytes / settings.history_max_bytes)
    return HistoryFigures(
        entries=state.entries - trimmed,
        bytes=state.kept_bytes,
        used_ratio=min(used, 1.0),
        readers=len(readers),
        reader_lag_changes=max((state.newest - reader.version for reader in readers), default=0),
    )
