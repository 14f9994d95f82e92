"""The audit: one record of every change and every refusal on both ports.

`Audit` has one function per outcome: `done`, `refused` and `failed`. Each writes a line of the logger `routebook.audit`
with structured fields and is counted in the metrics. Refusals are also kept for the store (`Refusals` in
`background/change_log.py` writes them), so that `GET /v1/changes` and `routebook changes` show them.

Invariant: a peer cannot fill the disk, the memory or the store. Lines have a limit per address and one for all
addresses together; further lines are counted, and reported as "and N more". Refusals that differ only in their time
become one record with a count, and a limited number of records waits for the store. While the store is away, more of
them wait (`MAX_HELD`); beyond that, refusals are counted in one record without their details.

Lines of callers with the permission of an operator are not limited.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from routebook.model.names import Caller
from routebook.observability.metrics import Metrics

Outcome = Literal["done", "refused", "failed"]

PERIOD_S: Final = 10.0
LINES_PER_ADDRESS: Final[dict[Outcome, int]] = {"done": 1_000, "refused": 20, "failed": 20}
"""Per period. A fleet of a thousand brokers behind one address that registers again is still logged in full."""
LINES_OF_ALL: Final[dict[Outcome, int]] = {"done": 4_000, "refused": 200, "failed": 200}
MAX_ADDRESSES: Final = 500
"""Number of addresses that are counted separately in one period; the others are counted together."""
MAX_WAITING: Final = 100
"""Number of records that wait for the store; they are written once a second."""
MAX_HELD: Final = 1_000
"""Number of records that wait while the store cannot be reached: 1.5 MB at most."""
VALUE_CHARACTERS: Final = 300
OTHERS: Final = "other addresses"

_log = logging.getLogger("routebook.audit")


@dataclass(slots=True)
class Refusal:
    """Refusals that are equal but for their time."""

    caller: Caller
    what: str
    outcome: Outcome
    reason: str
    first_ms: int
    count: int = 1

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for refusals that become one record."""
        caller = self.caller
        return self.outcome, caller.actor, address_of(caller.source), caller.port, caller.verb, self.reason


@dataclass(slots=True)
class _Lines:
    """The lines of one outcome in this period, by address."""

    written: Counter[str] = field(default_factory=Counter)
    suppressed: Counter[str] = field(default_factory=Counter)
    written_of_all: int = 0

    def take(self, address: str, per_address: int, of_all: int) -> bool:
        known = address in self.written or len(self.written) < MAX_ADDRESSES
        key = address if known else OTHERS
        if self.written[key] >= per_address or self.written_of_all >= of_all:
            self.suppressed[key if key in self.suppressed or len(self.suppressed) < MAX_ADDRESSES else OTHERS] += 1
            return False
        self.written[key] += 1
        self.written_of_all += 1
        return True


class Audit:
    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._period_began = clock()
        self._lines: dict[Outcome, _Lines] = {}
        self._waiting: dict[tuple[str, ...], Refusal] = {}
        self._held: dict[tuple[str, ...], Refusal] = {}
        """Could not be written yet."""

    def done(self, caller: Caller, *, what: str = "", before: str = "", after: str = "", cause: str = "") -> None:
        """A change was made, or something guarded was read."""
        self._record("done", caller, what, before=before, after=after, cause=cause)

    def refused(self, caller: Caller, *, what: str = "", reason: str) -> None:
        """A request was refused, by a rule, a limit or a permission. Nothing was changed."""
        self._record("refused", caller, what, reason=reason)
        self._keep("refused", caller, what, reason)

    def failed(self, caller: Caller, *, what: str = "", reason: str) -> None:
        """A change was allowed and could not be made, or it is unknown whether it was made."""
        self._record("failed", caller, what, reason=reason)
        self._keep("failed", caller, what, reason)

    def take_refusals(self) -> list[Refusal]:
        """What waits for the store. Also reports the suppressed lines of a period that is over."""
        self._end_period()
        taken = [*self._held.values(), *self._waiting.values()]
        self._held, self._waiting = {}, {}
        return taken

    def hold_refusals(self, refusals: Sequence[Refusal]) -> None:
        """Takes back what could not be written."""
        for refusal in refusals:
            _add(self._held, refusal, MAX_HELD, "too many different refusals while the store was away to list each")

    def _record(self, outcome: Outcome, caller: Caller, what: str, **values: str) -> None:
        self._metrics.audited(caller.port, outcome)
        self._end_period()
        level = logging.INFO if outcome == "done" else logging.WARNING
        if not _log.isEnabledFor(level) or not self._may_be_written(outcome, caller):
            return
        fields = {
            "outcome": outcome,
            "actor": caller.actor,
            "source": caller.source,
            "port": caller.port,
            "verb": caller.verb,
            "object": what,
            **values,
        }
        extra = {name: shorten(value) for name, value in fields.items() if value}
        _log.log(level, "%s %s", outcome, caller.verb or "change", extra=extra)

    def _may_be_written(self, outcome: Outcome, caller: Caller) -> bool:
        if caller.is_operator or not caller.source:
            return True
        lines = self._lines.setdefault(outcome, _Lines())
        return lines.take(address_of(caller.source), LINES_PER_ADDRESS[outcome], LINES_OF_ALL[outcome])

    def _end_period(self) -> None:
        now = self._clock()
        if now - self._period_began < PERIOD_S:
            return
        self._period_began = now
        ended, self._lines = self._lines, {}
        for outcome, lines in ended.items():
            for address, count in lines.suppressed.most_common(20):
                _log.warning("and %d more: %s, from %s", count, outcome, address)
            rest = lines.suppressed.total() - sum(count for _, count in lines.suppressed.most_common(20))
            if rest:
                _log.warning("and %d more: %s, from %s", rest, outcome, OTHERS)

    def _keep(self, outcome: Outcome, caller: Caller, what: str, reason: str) -> None:
        refusal = Refusal(caller, shorten(what), outcome, shorten(reason), int(time.time() * 1000))
        _add(self._waiting, refusal, MAX_WAITING, "too many different refusals in one second to list each")


def _add(records: dict[tuple[str, ...], Refusal], refusal: Refusal, limit: int, reason_beyond: str) -> None:
    """Counts it in the record of equal refusals. Without one and without room, it is counted without its details."""
    if refusal.key not in records and len(records) >= limit:
        caller = Caller(OTHERS, port=refusal.caller.port, worker=refusal.caller.worker)
        refusal = replace(refusal, caller=caller, what="", reason=reason_beyond)
    known = records.get(refusal.key)
    if known is None:
        records[refusal.key] = refusal
    else:
        known.count += refusal.count


def address_of(source: str) -> str:
    """`host` of `host:port`. One peer has many ports and one address."""
    return source.rpartition(":")[0] or source


def shorten(value: str) -> str:
    return value if len(value) <= VALUE_CHARACTERS else f"{value[:VALUE_CHARACTERS]}…"
