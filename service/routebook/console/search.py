"""Searches the names of topics, of which there may be 100,000 and more, without an index.

An index would have to follow every change of the table. A search instead goes through all names in steps of about a
millisecond, between which lookups are answered, and keeps only the best ones: some ten milliseconds in all.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import Final

STEP_NAMES: Final = 5_000
MAX_OFFSET: Final = 10_000
"""The last result to which a list can be paged. One more letter in the search finds the others."""


@dataclass(frozen=True, slots=True)
class Found:
    names: Sequence[str]
    total: int
    """Number of names that contain the text."""


async def search_names(names: Collection[str], text: str, *, offset: int = 0, limit: int = 100) -> Found:
    """Names that begin with the text come first, then those that contain it, both in alphabetical order. Capital
    letters count only if the text has one.
    """
    offset = min(offset, MAX_OFFSET)
    ignores_case = text == text.lower()
    best: list[tuple[bool, str]] = []
    total = 0
    # A copy, since the table may change between two steps.
    remaining = iter(tuple(names))
    while step := list(islice(remaining, STEP_NAMES)):
        found = [rank for name in step if (rank := _rank(name, text, ignores_case=ignores_case)) is not None]
        total += len(found)
        best = nsmallest(offset + limit, best + found)
        await asyncio.sleep(0)
    return Found([name for _, name in best[offset:]], total)


def _rank(name: str, text: str, *, ignores_case: bool) -> tuple[bool, str] | None:
    at = (name.lower() if ignores_case else name).find(text)
    return None if at < 0 else (at > 0, name)
