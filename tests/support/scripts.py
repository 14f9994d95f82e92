"""Short ways to speak to the scripts in their own tests."""

import json
from typing import Any

from routebook.model.caller import Caller
from routebook.store.book import Book
from routebook.store.changes import Change, read_changes

CALLER = Caller("worker-1", "127.0.0.1:40000")


async def history(book: Book, *, after: int = 0) -> list[Change]:
    """All changes, or those after a version."""
    return [change for change in await read_changes(book, (0, 0), count=10_000) if change.version > after]


async def kinds(book: Book, *, after: int = 0) -> list[str]:
    return [change.kind for change in await history(book, after=after)]


async def newest(book: Book) -> Change:
    return (await history(book))[-1]


async def raw_payload(book: Book, index: int = -1) -> Any:
    entries = await book.client.call("XRANGE", book.keys.changes, "-", "+")
    return json.loads(entries[index][1][1])


async def meta(book: Book, field: str) -> int:
    return int(await book.client.call("HGET", book.keys.meta, field) or 0)


async def deadline_of(book: Book, member: str) -> int:
    return int(await book.client.call("ZSCORE", book.keys.table("deadlines"), member))


async def make_due(book: Book, *members: str) -> None:
    """Their deadlines have passed, as the deadline clock sees it."""
    for member in members:
        await book.client.call("ZADD", book.keys.table("deadlines"), "XX", 1, member)
