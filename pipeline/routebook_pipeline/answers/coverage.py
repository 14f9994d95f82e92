"""Which window an answer is about, and that nobody is answered for a time the history does not reach.

`complete until` C: no entry below C will come any more. Asked beyond it: refused, or cut there when a part is welcome.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from routebook_pipeline.errors import NegativeAnswerError, WrongUsageError
from routebook_pipeline.history import DAY_MS, ERA_SHIFT, Instant, Window
from routebook_pipeline.times import When, iso

DEFAULT_LENGTH_MS: Final = DAY_MS


@dataclass(frozen=True)
class HistoryExtent:
    """How far the lake's history goes."""

    complete_until_ms: int
    now_ms: int
    """On the store's clock when it answers: what `now` and `-2h` are counted from."""
    since_ms: int | None = None
    """Of the first entry; none: an empty lake."""
    newest: tuple[int, int] = (0, 0)
    """Era and version of the last entry."""
    first: tuple[int, int] = (0, 1)
    """Of the first one."""
    store_problem: str = ""
    """Why the store could not say how far it is; empty when it did."""

    @property
    def advice(self) -> str:
        return "`routebook pipeline ingest --once` brings the lake up to date; --allow-partial answers for the part."


@dataclass(frozen=True)
class ResolvedWindow:
    window: Window
    asked_until_ms: int

    @property
    def is_partial(self) -> bool:
        return self.asked_until_ms > self.window.end_ms


def resolve_window(
    extent: HistoryExtent, start: When | None, end: When | None, *, allow_partial: bool
) -> ResolvedWindow:
    """Without an end: as far as the history is complete. Without a start: a day before the end.

    A part is what the history reaches of the window: of one that lies wholly beyond, nothing.
    """
    complete = extent.complete_until_ms
    until = end.on_clock(extent.now_ms) if end is not None else complete
    since = start.on_clock(extent.now_ms) if start is not None else until - DEFAULT_LENGTH_MS
    if end is None and since > complete:
        # "The last five minutes", of which the history has none yet: asked for until now.
        until = max(since, extent.now_ms)
    if since > until:
        raise WrongUsageError(
            f"The window ends ({iso(until)}) before it starts ({iso(since)}). Exchange --from and --to."
        )
    if until > complete and not allow_partial:
        raise NegativeAnswerError(
            f"The history is complete until {iso(complete)}, and {iso(until)} is later"
            f"{extent.store_problem and f' ({extent.store_problem})'}. {extent.advice}"
        )
    return ResolvedWindow(Window(min(since, complete), min(until, complete)), until)


def resolve_instant(extent: HistoryExtent, at: When | None, *, allow_partial: bool) -> tuple[int, bool]:
    """The last millisecond that counts, and whether it is earlier than was asked for. `now` is what is complete now."""
    complete = extent.complete_until_ms - 1
    inputs = complete if at is None else at.on_clock(extent.now_ms) - (at.ago_ms is not None)
    if extent.since_ms is not None and inputs < extent.since_ms:
        raise NegativeAnswerError(f"Of {iso(inputs)} nothing is known: {_beginning(extent)}.")
    if inputs <= complete:
        return inputs, False
    if not allow_partial:
        raise NegativeAnswerError(
            f"The history is complete until {iso(extent.complete_until_ms)}, and {iso(inputs)} is not before that"
            f"{extent.store_problem and f' ({extent.store_problem})'}. {extent.advice}"
        )
    return complete, True


def instant_of_version(extent: HistoryExtent, version: int, era: int | None) -> Instant:
    """Of the newest era, unless another is named."""
    newest_era, newest = extent.newest
    wanted = newest_era if era is None else era
    if (wanted, version) < extent.first:
        raise NegativeAnswerError(f"Of version {version} nothing is known: {_beginning(extent)}.")
    if (wanted, version) > (newest_era, newest):
        raise NegativeAnswerError(
            f"The lake holds the history up to version {newest}{f' of era {newest_era}' if newest_era else ''}, and "
            f"{version} is later. `routebook pipeline ingest --once` brings it up to date."
        )
    return Instant(ord=wanted * ERA_SHIFT + version)


def _beginning(extent: HistoryExtent) -> str:
    era, version = extent.first
    since = f" at {iso(extent.since_ms)}" if extent.since_ms is not None else ""
    return f"the lake holds the history since version {version}{f' of era {era}' if era else ''}{since}"


def is_ok(integrity: Sequence[Mapping[str, Any]]) -> bool:
    """No entries at all leave nothing out."""
    return all(row["ok"] for row in integrity)


def integrity_line(integrity: Sequence[Mapping[str, Any]]) -> str:
    if not integrity:
        return "history ok: no entries in the window"
    state = "ok" if is_ok(integrity) else "NOT ok"
    return f"history {state}: " + "; ".join(_era(row, several=len(integrity) > 1) for row in integrity)


def window_line(start_ms: int, end_ms: int, complete_until_ms: int, asked_until_ms: int | None = None) -> str:
    line = f"{iso(start_ms)} to {iso(end_ms)}, complete until {iso(complete_until_ms)}"
    if asked_until_ms is not None and asked_until_ms > end_ms:
        line += f"; PARTIAL: asked until {iso(asked_until_ms)}"
    return line


def _era(row: Mapping[str, Any], *, several: bool) -> str:
    parts = [f"versions {row['first_version']} to {row['last_version']}", f"{row['entries']} entries"]
    if row["missing"]:
        ranges = ", ".join(f"{hole['from_version']}-{hole['to_version']}" for hole in row["holes"])
        parts.append(f"{row['missing']} missing ({ranges})")
    parts += [f"{row[name]} {name}" for name in ("forks", "late", "duplicates") if row[name]]
    parts += [f"{number} unreadable ({reason})" for reason, number in sorted((row["unreadable"] or {}).items())]
    return (f"era {row['era']}: " if several else "") + ", ".join(parts)
