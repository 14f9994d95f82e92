"""Tests wait for conditions, not for seconds."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable


async def until(
    condition: Callable[[], object | Awaitable[object]], *, timeout_s: float = 10.0, every_s: float = 0.01
) -> None:
    """Returns when the condition (plain or async) is true; fails naming it when that takes too long."""
    deadline = time.monotonic() + timeout_s
    while True:
        held = condition()
        if inspect.isawaitable(held):
            held = await held
        if held:
            return
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {inspect.getsource(condition).strip()}"
        await asyncio.sleep(every_s)
