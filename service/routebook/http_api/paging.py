"""Lists in pages. A cursor names the last item given, so pages stay right while the table changes."""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Query

from routebook.errors import InvalidInputError

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000


@dataclass(frozen=True, slots=True)
class Page:
    limit: int
    after: str | None

    def of(self, names: Iterable[str]) -> tuple[Sequence[str], str | None]:
        """The names of this page, sorted, and the cursor of the next one."""
        ordered = sorted(names)
        start = bisect_right(ordered, self.after) if self.after is not None else 0
        chosen = ordered[start : start + self.limit]
        is_last = start + self.limit >= len(ordered)
        return chosen, None if is_last else _cursor(chosen[-1])


def page_of(
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="So many items at most.")] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, Query(max_length=2000, description="`next_cursor` of the page before.")] = None,
) -> Page:
    return Page(limit, _after(cursor) if cursor else None)


PageOf = Annotated[Page, Depends(page_of)]


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode("ascii").rstrip("=")


def _after(cursor: str) -> str:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
    except (UnicodeError, binascii.Error) as error:
        raise InvalidInputError("cursor", cursor, "what `next_cursor` of the page before said") from error
