"""What an answer rests on, in one line for people; and whether it is whole."""

from collections.abc import Mapping, Sequence
from typing import Any

from routebook_pipeline.times import iso

Row = Mapping[str, Any]


def is_ok(integrity: Sequence[Row]) -> bool:
    """No entries at all leave nothing out."""
    return all(row["ok"] for row in integrity)


def integrity_line(integrity: Sequence[Row]) -> str:
    if not integrity:
        return "history ok: no entries in the window"
    state = "ok" if is_ok(integrity) else "NOT ok"
    return f"history {state}: " + "; ".join(_era(row, several=len(integrity) > 1) for row in integrity)


def window_line(start_ms: int, end_ms: int, complete_until_ms: int, asked_until_ms: int | None = None) -> str:
    line = f"{iso(start_ms)} to {iso(end_ms)}, complete until {iso(complete_until_ms)}"
    if asked_until_ms is not None and asked_until_ms > end_ms:
        line += f"; PARTIAL: asked until {iso(asked_until_ms)}"
    return line


def _era(row: Row, *, several: bool) -> str:
    parts = [f"versions {row['first_version']} to {row['last_version']}", f"{row['entries']} entries"]
    if row["missing"]:
        ranges = ", ".join(f"{hole['from_version']}-{hole['to_version']}" for hole in row["holes"])
        parts.append(f"{row['missing']} missing ({ranges})")
    parts += [f"{row[name]} {name}" for name in ("forks", "late", "duplicates") if row[name]]
    parts += [f"{number} unreadable ({reason})" for reason, number in sorted((row["unreadable"] or {}).items())]
    return (f"era {row['era']}: " if several else "") + ", ".join(parts)
