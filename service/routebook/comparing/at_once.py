"""Many askings, a bounded number of them under way."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


async def each(items: Iterable[Item], do: Callable[[Item], Awaitable[None]], *, at_once: int) -> None:
    """The first failure ends all."""
    left = iter(items)

    async def work() -> None:
        for item in left:
            await do(item)

    tasks = [asyncio.create_task(work()) for _ in range(at_once)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
