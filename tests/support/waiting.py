"""Tests wait for conditions, not for seconds."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

TIMEOUT_S = 60.0
"""Far longer than a condition takes on an idle machine, so that a busy one fails no test."""


async def until(
    condition: Callable[[], object | Awaitable[object]], *, timeout_s: float = TIMEOUT_S, every_s: float = 0.01
) -> None:
    """Returns when the condition (plain or async) is true. Fails with its source if that takes too long."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {_text_of(condition)}"
        await asyncio.sleep(every_s)


def wait_until(
    condition: Callable[[], object], what: str, *, timeout_s: float = TIMEOUT_S, every_s: float = 0.02
) -> None:
    """The same for code outside an event loop. A failure says what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(every_s)


def _text_of(condition: Callable[[], object]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except TypeError:
        return repr(condition)
