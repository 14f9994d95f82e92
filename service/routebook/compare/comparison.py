"""Two servers, asked at the same time; and what differed asked once more, since a fleet changes meanwhile.

Only what differs both times counts: a broker that registered between two questions is no difference.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from routebook.client.name_server import NameServer
from routebook.compare.collecting import (
    Questions,
    Said,
    ask_lists,
    ask_members,
    ask_routes,
    no_progress,
)
from routebook.compare.differences import Difference, differing_topics, find_differences, things_of

Progress = Callable[[str, int, int], None]
"""Address, routes that it has answered, of how many."""
First = TypeVar("First")
Second = TypeVar("Second")


@dataclass(frozen=True, slots=True)
class Compared:
    differences: tuple[Difference, ...]
    settled: int
    """Things that differed first, and the second time no more."""
    here: Said
    there: Said

    @property
    def equal(self) -> bool:
        return not self.differences


def silent(address: str, done: int, total: int) -> None:
    del address, done, total


async def compare_servers(
    here: NameServer, there: NameServer, questions: Questions, *, settle_s: float, progress: Progress = silent
) -> Compared:
    one, other = await _both(ask_lists(here, questions), ask_lists(there, questions))
    one, other = await _both(
        _with_routes(here, one, other, progress),
        _with_routes(there, other, one, progress),
    )
    one, other = await _both(ask_members(here, one), ask_members(there, other))
    first = things_of(find_differences(one, other))
    if not first:
        return Compared((), 0, one, other)
    await asyncio.sleep(settle_s)
    named = {name for _, name in first} & (one.routes.keys() | other.routes.keys())
    topics = named | differing_topics(one, other)
    one, other = await _both(
        _again(here, questions, one, topics),
        _again(there, questions, other, topics),
    )
    still = tuple(found for found in find_differences(one, other) if found.thing in first)
    return Compared(still, len(first - things_of(still)), one, other)


async def _with_routes(server: NameServer, own: Said, others: Said, progress: Progress) -> Said:
    """A server that does not list its topics is asked for those that the other one lists."""
    topics = own.topics if own.topics is not None else others.topics or frozenset()

    def tell(done: int, total: int) -> None:
        progress(server.address, done, total)

    return own.with_routes(await ask_routes(server, topics, tell))


async def _again(server: NameServer, questions: Questions, before: Said, topics: set[str]) -> Said:
    said = await ask_lists(server, questions)
    routes = await ask_routes(server, topics, no_progress)
    said = said.with_routes({**before.routes, **routes})
    return await ask_members(server, said) if before.members is not None else replace(said, declined=before.declined)


async def _both(one: Awaitable[First], other: Awaitable[Second]) -> tuple[First, Second]:
    """When one fails, the other one is not left behind."""
    tasks = asyncio.ensure_future(one), asyncio.ensure_future(other)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
