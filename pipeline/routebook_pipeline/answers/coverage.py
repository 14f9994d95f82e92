"""Which time an answer covers, how far the history reaches, and the lines that say so.

The history is *complete until* C if no entry before C can still arrive. A question about a time after C is refused, or
the window is cut at C with `--allow-partial`.
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
    """Where the lake's history begins and how far it reaches."""

    complete_until_ms: int
    now_ms: int
    """The store's clock if the store answers, else this machine's: `now` and `-2h` count from here."""
    since_ms: int | None = None
    """Time of the first entry; None if the lake is empty."""
    newest: tuple[int, int] = (0, 0)
    """Era and version of the last entry."""
    first: tuple[int, int] = (0, 1)
    """Era and version of the first entry."""
    store_problem: str = ""
    """Why it is unknown whether the store has later changes; empty if the lake is up to date."""

    @property
    def advice(self) -> str:
        return "`routebook pipeline ingest --once` brings the lake up to date; --allow-partial answers for the part."


@dataclass(frozen=True)
class ResolvedWindow:
    """The window that is answered, and the end that was asked for."""

    window: Window
    asked_until_ms: int

    @property
    def is_partial(self) -> bool:
        return self.asked_until_ms > self.window.end_ms


def resolve_window(
    extent: HistoryExtent, start: When | None, end: When | None, *, allow_partial: bool
) -> ResolvedWindow:
    """The default end is the end of the complete history; the default start is a day before the end.

    With `allow_partial` the window is cut where the history ends. A window that lies wholly after that point is empty.
    """
    complete = extent.complete_until_ms
    until = end.on_clock(extent.now_ms) if end is not None else complete
    since = start.on_clock(extent.now_ms) if start is not None else until - DEFAULT_LENGTH_MS
    if end is None and since > complete:
        # For example `--from -5m` when the last batch was read ten minutes ago: the window ends now.
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
    """The last millisecond to include, and whether it is earlier than the one asked for.

    `now` is the last millisecond that is complete.
    """
    complete = extent.complete_until_ms - 1
    asked = complete if at is None else at.on_clock(extent.now_ms) - (at.ago_ms is not None)
    if extent.since_ms is not None and asked < extent.since_ms:
        raise NegativeAnswerError(f"Nothing is known about {iso(asked)}: {_beginning(extent)}.")
    if asked <= complete:
        return asked, False
    if not allow_partial:
        raise NegativeAnswerError(
            f"The history is complete until {iso(extent.complete_until_ms)}, and {iso(asked)} is not before that"
            f"{extent.store_problem and f' ({extent.store_problem})'}. {extent.advice}"
        )
    return complete, True


def instant_of_version(extent: HistoryExtent, version: int, era: int | None) -> Instant:
    """The instant right after this version; without an era, of the newest one."""
    newest_era, newest = extent.newest
    wanted = newest_era if era is None else era
    if (wanted, version) < extent.first:
        raise NegativeAnswerError(f"Nothing is known about version {version}: {_beginning(extent)}.")
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
    """Whether nothing is missing. A window without entries misses nothing."""
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
