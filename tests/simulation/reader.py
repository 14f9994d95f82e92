"""A program that follows the history and reports its position, as the pipeline does.

It replays the entries into a table of its own. When entries are missing, or the store has another history, it drops
the table, requests a baseline, and continues from it. Sometimes it is away, so that the history is trimmed before it
has read everything.
"""

import asyncio
import json
from typing import TYPE_CHECKING, Final

from routebook.errors import StoreError
from routebook.store.history import split_id
from routebook.store.keys import Keys
from tests.properties.replay import Entry, replay
from tests.properties.whole_worker import state_of_table
from tests.simulation.fleet import NAMESPACE
from tests.simulation.network import SimulatedClient

if TYPE_CHECKING:
    from tests.simulation.world import World

NAME: Final = "reader"
PERIOD_S: Final = 1.5
AWAY_S: Final = 15.0


class HistoryReader:
    requests_baseline = True

    def __init__(self, world: "World") -> None:
        self._world = world
        self._keys = Keys(NAMESPACE)
        self._client = SimulatedClient(world.network, NAME, lambda _: world.store)
        self._history = ""
        self._newest: tuple[int, int] = (0, 0)
        self._entries: list[Entry] | None = []
        """Since the first entry of the store, or since a baseline; None while a baseline is awaited."""
        self._awaits_end = False
        """The baseline has not ended yet. If another one begins before, it never will."""
        self._read_payloads: dict[tuple[int, int], bytes] = {}
        self._has_forked = False
        """The store lost an entry that this reader has read, and gave its id or a smaller one to a later entry: its
        clock was set back.
        """
        self.away_until = 0.0

    async def run(self) -> None:
        while True:
            may_be_away = self._newest[1] > 0 and self._world.loop.now < self._world.plan.end_of_events
            is_away = may_be_away and self._world.chance.random() < 0.1
            await asyncio.sleep(AWAY_S if is_away else PERIOD_S)
            await asyncio.sleep(self.away_until - self._world.loop.now)
            try:
                await self._read()
            except StoreError:
                continue

    async def _read(self) -> None:
        call, keys = self._client.call, self._keys
        head = await call("HMGET", keys.meta, "history", "version")
        history = (head[0] or b"").decode()
        if not history:
            return
        if history != self._history:
            is_first = not self._history
            self._history, self._newest = history, (0, 0)
            self._entries, self._awaits_end = [] if is_first else None, False
            self._read_payloads.clear()
            self._has_forked = False
        found = await call("XREAD", "COUNT", 1000, "STREAMS", keys.changes, f"{self._newest[0]}-{self._newest[1]}")
        for entry_id, fields in found[0][1] if found else ():
            self._take(*split_id(entry_id.decode()), fields[1])
        now = int(self._world.store.store.now_ms())
        await call("HSET", keys.readers, NAME, f"{self._newest[1]} {now}")
        if self._entries is None and self.requests_baseline:
            await call("HSETNX", keys.meta, "baseline_requested", f"{now} trimmed")

    def _take(self, ms: int, version: int, payload: bytes) -> None:
        change = json.loads(payload)
        if self._entries is not None and version != self._newest[1] + 1:
            self._entries, self._awaits_end = None, False
        self._newest = (ms, version)
        self._read_payloads[ms, version] = payload
        if change["kind"] == "baseline-begin" and (self._entries is None or self._awaits_end):
            self._entries, self._has_forked, self._awaits_end = [], False, True
        self._awaits_end &= change["kind"] != "baseline-end"
        if self._entries is not None:
            self._entries.append((ms, version, change))

    def entry_written(self, ms: int, version: int, payload: bytes) -> None:
        """Called for each new entry. Workers compare the contents of their last entry, and rename the history. But an
        entry that no worker had read yet is missed by the reader only, which knows entries by their ids.
        """
        is_other = self._read_payloads.get((ms, version), payload) != payload
        self._has_forked |= is_other or (ms, version) < self._newest

    def check(self) -> None:
        if self._entries is None or self._awaits_end:
            self._world.checker.violated(
                "I9", "a reader that has missed entries waits for a baseline that never comes."
            )
            return
        if self._has_forked:
            return
        worker = next(iter(self._world.workers.values()))
        expected = state_of_table(worker.replica.table).route_table
        try:
            found = replay(self._entries)
        except (AssertionError, KeyError) as error:
            self._world.checker.violated("I4", f"a reader of the history cannot apply an entry: {error!r}.")
            return
        if found != expected:
            self._world.checker.violated("I4", f"a reader of the history has {found}, and the table is {expected}.")
