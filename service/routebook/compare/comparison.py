"""Compares two servers. Objects that differ are read a second time, because a fleet changes in the meantime.

Only what differs both times is reported: a broker that registers between two requests makes no difference.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from routebook.compare.collecting import (
    CollectOptions,
    ServerState,
    collect_lists,
    collect_member_groups,
    collect_routes,
    ignore_progress,
)
from routebook.compare.differences import Difference, differing_topics, find_differences, keys_of
from routebook.remoting_client.name_server import NameServer

Progress = Callable[[str, int, int], None]
"""Called with (address, routes read, total)."""
First = TypeVar("First")
Second = TypeVar("Second")


@dataclass(frozen=True, slots=True)
class Comparison:
    differences: tuple[Difference, ...]
    transient: int
    """Objects that differed only the first time."""
    here: ServerState
    there: ServerState

    @property
    def equal(self) -> bool:
        return not self.differences


def ignore_server_progress(address: str, done: int, total: int) -> None:
    del address, done, total


async def compare_servers(
    here: NameServer,
    there: NameServer,
    options: CollectOptions,
    *,
    recheck_after_s: float,
    progress: Progress = ignore_server_progress,
) -> Comparison:
    one, other = await _both(collect_lists(here, options), collect_lists(there, options))
    one, other = await _both(
        _with_routes(here, one, other, progress),
        _with_routes(there, other, one, progress),
    )
    one, other = await _both(collect_member_groups(here, one), collect_member_groups(there, other))
    first = keys_of(find_differences(one, other))
    if not first:
        return Comparison((), 0, one, other)
    await asyncio.sleep(recheck_after_s)
    named = {name for _, name in first} & (one.routes.keys() | other.routes.keys())
    topics = named | differing_topics(one, other)
    one, other = await _both(
        _read_again(here, options, one, topics),
        _read_again(there, options, other, topics),
    )
    remaining = tuple(found for found in find_differences(one, other) if found.key in first)
    return Comparison(remaining, len(first - keys_of(remaining)), one, other)


async def _with_routes(server: NameServer, state: ServerState, other: ServerState, progress: Progress) -> ServerState:
    """When a server does not list its topics, the routes of those that the other one lists are read."""
    topics = state.topics if state.topics is not None else other.topics or frozenset()

    def report(done: int, total: int) -> None:
        progress(server.address, done, total)

    return state.with_routes(await collect_routes(server, topics, report))


async def _read_again(
    server: NameServer, options: CollectOptions, before: ServerState, topics: set[str]
) -> ServerState:
    state = await collect_lists(server, options)
    routes = await collect_routes(server, topics, ignore_progress)
    state = state.with_routes({**before.routes, **routes})
    return (
        await collect_member_groups(server, state)
        if before.member_groups is not None
        else replace(state, declined=before.declined)
    )


async def _both(one: Awaitable[First], other: Awaitable[Second]) -> tuple[First, Second]:
    """When one fails, the other one is cancelled."""
    tasks = asyncio.ensure_future(one), asyncio.ensure_future(other)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
