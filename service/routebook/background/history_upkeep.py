"""What the leader does for the history: takes away what nobody needs, and now and then writes the whole table into it.

A baseline is as long as the table. It is written part by part, each a script that blocks the store for a moment, and
in between the leader goes on leading.
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
LOOK_PERIOD_S: Final = 5.0
"""How soon a baseline begins that somebody wants."""
PAUSE_AFTER_FAILURE_S: Final = 60.0
STEP_S: Final = 0.05
"""So long at a time; then the leader does its other work, and the store everybody else's."""
BASELINE_PERIOD_MS: Final = 86_400_000
AFTER_A_LOSS_MS: Final = 3_600_000
"""A table that is itself larger than the history may be would otherwise be written again and again."""


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
        self._next_look = 0.0
        self._baseline: AsyncGenerator[int] | None = None
        self._lease = ""
        self._known_history = ""
        self._known_since = 0.0
        self._warned_of: frozenset[str] = frozenset()

    @property
    def is_busy(self) -> bool:
        """A baseline is being written."""
        return self._baseline is not None

    async def go_on(self, lease: str) -> None:
        """Whatever is due, for a moment. FencedError: another one leads."""
        now = time.monotonic()
        if now >= self._next_trim:
            self._next_trim = now + TRIM_PERIOD_S
            await self.trim()
        if self._baseline is not None and self._lease != lease:
            await self._give_up()
        if self._baseline is None and now >= self._next_look:
            self._next_look = now + LOOK_PERIOD_S
            cause = self._due(await read_baseline_state(self._namespace), now)
            if cause:
                _log.info("A baseline of the table is written into the history (%s).", cause)
                self._lease = lease
                self._baseline = write_baseline(self._namespace, lease, caller=self._caller, cause=cause)
        if self._baseline is not None:
            await self._write_on(self._baseline, until=now + STEP_S)

    # -- trimming

    async def trim(self) -> None:
        settings = self._live.current
        state = await read_history_state(self._namespace)
        self._warn_of_odd_readers(state)
        bound = history_bound(state, settings)
        gone = await trim_history(self._namespace, state, bound.below)
        self._metrics.history(_figures(state, gone, settings))
        first = state.first + gone
        lost = first - max(bound.keep, state.first)
        if lost <= 0:
            return
        self._metrics.history_lost(lost)
        missed_by = [one.name for one in active_readers(state, settings.reader_expiry_ms) if one.version + 1 < first]
        _log.warning(
            "%d changes were trimmed before they had to go: %s is reached. %s.",
            lost,
            bound.reason,
            f"Missed by {', '.join(missed_by)}" if missed_by else "No reader misses them",
        )
        if missed_by:
            await self._complete_again(first)

    async def _complete_again(self, first: int) -> None:
        """What is left makes sense to a reader only from a baseline on."""
        last = await read_baseline_state(self._namespace)
        if last.last_begin < first and last.now_ms - last.last_ms >= AFTER_A_LOSS_MS:
            await request_baseline(self._namespace, "trimmed")

    def _warn_of_odd_readers(self, state: HistoryState) -> None:
        odd = frozenset(state.unreadable_readers)
        if odd - self._warned_of:
            key = self._namespace.keys.readers
            _log.warning("%s holds what is no place of a reader, of: %s.", key, ", ".join(sorted(odd)))
        self._warned_of = odd

    # -- baselines

    def _due(self, state: BaselineState, now: float) -> Cause | None:
        """Not while the store is filling up again: what is not back yet would count as gone."""
        if self._replica.history != self._known_history or self._replica.is_recovering:
            self._known_history, self._known_since = self._replica.history, now
        if self._replica.is_recovering or self._replica.version == 0:
            return None
        if state.requested:
            return state.requested
        if state.of_history != self._replica.history:
            settled = (now - self._known_since) * 1000 >= self._live.current.recovery_window_ms
            return "new-history" if settled else None
        return "daily" if state.now_ms - state.last_ms >= BASELINE_PERIOD_MS else None

    async def _write_on(self, baseline: AsyncGenerator[int], until: float) -> None:
        try:
            async for _ in baseline:
                if time.monotonic() >= until:
                    return
            self._baseline = None
        except (FencedError, StoreError):
            self._next_look = time.monotonic() + PAUSE_AFTER_FAILURE_S
            await self._give_up()
            raise

    async def _give_up(self) -> None:
        """Another one begins it anew: a beginning without an end says nothing."""
        if self._baseline is not None:
            await self._baseline.aclose()
            self._baseline = None


def _figures(state: HistoryState, gone: int, settings: Settings) -> HistoryFigures:
    readers = active_readers(state, settings.reader_expiry_ms)
    # Before trimming: what the bounds are about. What is trimmed away is the sign that one of them is near.
    used = max(state.entries / settings.history_hard_limit, state.kept_bytes / settings.history_max_bytes)
    return HistoryFigures(
        entries=state.entries - gone,
        bytes=state.kept_bytes,
        used_ratio=min(used, 1.0),
        readers=len(readers),
        reader_lag_changes=max((state.newest - reader.version for reader in readers), default=0),
    )
