"""UTC days, as the partitions spell them, and what lies in them."""

from bisect import bisect_right
from collections.abc import Iterable
from datetime import date, timedelta
from itertools import groupby

from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.lake.tables import DataFile

_EPOCH = date(1970, 1, 1)


def start_ms(day: str) -> int:
    """The midnight that the day begins with."""
    try:
        return (date.fromisoformat(day) - _EPOCH).days * 86_400_000
    except ValueError as error:
        raise WrongUsageError(f"{day!r} is no day. Allowed: days as 2026-11-18, in UTC.") from error


def names_of_days(first: str, last: str) -> list[str]:
    """Both included."""
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    return [(begin + timedelta(days=number)).isoformat() for number in range((end - begin).days + 1)]


class SoFar:
    """What the log says of a table's files, day by day: of each day together with all before it."""

    def __init__(self, files: Iterable[DataFile]) -> None:
        self._days: list[str] = []
        self._told: list[tuple[int, int]] = []
        newest = raw = 0
        for day, its in groupby(sorted(files, key=lambda file: file.day), key=lambda file: file.day):
            for file in its:
                newest = max(newest, file.last_ord or 0)
                # Nobody counted: any of them may be.
                raw += file.rows - (file.without_raw or 0)
            self._days.append(day)
            self._told.append((newest, raw))

    def newest(self, day: str) -> int:
        """`ord`; 0 when there was nothing."""
        return self._at(day)[0]

    def raw(self, day: str) -> int:
        return self._at(day)[1]

    def _at(self, day: str) -> tuple[int, int]:
        place = bisect_right(self._days, day)
        return self._told[place - 1] if place else (0, 0)
