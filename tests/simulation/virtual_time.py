"""An event loop whose clock jumps from one timer to the next, and the processes that share it.

Each callback belongs to the process in whose context it was created: a worker, a broker or a client. A process that was
killed runs nothing any more, wherever its tasks were waiting; a suspended one runs its callbacks after it continues.

The service reads the clock and draws random numbers through functions of `time`, `random` and `secrets`. `virtual`
replaces these for the duration of a run, which is the only place where the simulation touches them.
"""

import asyncio
import contextvars
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any, Final, TypeVar

EPOCH_S: Final = 1_700_000_000.0
"""The wall clock of all processes at the beginning of a run."""
MAX_STEPS: Final = 3_000_000
"""A run with more callbacks does not make progress."""

_Result = TypeVar("_Result")
_process: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)
process_here = _process.get
copy_context = contextvars.copy_context


class Process:
    """Something that can be killed or suspended as a whole."""

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_suspended = False
        self.clock_offset_s = 0.0
        """How far its wall clock is off."""
        self.tasks: list[asyncio.Task[Any]] = []
        self.backlog: list[Handle] = []
        self._loop = loop
        self._context = contextvars.copy_context()
        self._context.run(_process.set, self)

    def call(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """Calls the function as this process."""
        return self._context.run(function, *arguments)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.Task(work, loop=self._loop, context=self._context.copy())
        self.tasks.append(task)
        if len(self.tasks) > 500:
            self.tasks = [one for one in self.tasks if not one.done()]
        return task

    def spawn_later(self, work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> None:
        """For a timer, which must not create the coroutine before."""
        self.spawn(work(*arguments))

    def kill(self) -> None:
        self.is_alive = False
        self.backlog.clear()

    def suspend(self) -> None:
        self.is_suspended = True

    def resume(self) -> None:
        self.is_suspended = False
        self._loop.add_ready(self.backlog)
        self.backlog = []


class Handle:
    """What `call_soon` and `call_at` return."""

    __slots__ = ("_when", "arguments", "callback", "context", "is_cancelled", "process")

    def __init__(
        self,
        when: float,
        callback: Callable[..., Any],
        arguments: Any,
        context: contextvars.Context | None,
        process: Process | None,
    ) -> None:
        self._when = when
        self.callback = callback
        self.arguments = arguments
        self.context = context
        """None: what no process does, so it runs in the context of the loop."""
        self.process = process
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when


Connect = Callable[[Process, str], Coroutine[Any, Any, None]]
"""Dials an address for a process: returns, raises ConnectionRefusedError, or never ends."""


_AnyLoop: Any = asyncio.AbstractEventLoop
"""asyncio's own classes of handles are not needed, and half of its loop is about sockets."""


class VirtualLoop(_AnyLoop):  # type: ignore[misc]
    """Only what asyncio's tasks, futures, locks and timeouts need, and the two calls that dial an address."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self.stopped = False
        self.errors: list[dict[str, Any]] = []
        """What asyncio would have logged as an unhandled error."""
        self.connect: Connect | None = None
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._timer_number = 0
        self._is_over = False

    # -- running

    def run_until(self, end: float) -> None:
        """Runs everything that is due up to that time, unless `stopped` is set."""
        ready, timers = self._ready, self._timers
        asyncio._set_running_loop(self)
        try:
            while not self.stopped:
                while ready:
                    self._run(ready.popleft())
                if not timers or timers[0][0] > end:
                    break
                now = self.now = timers[0][0]
                while timers and timers[0][0] <= now:
                    handle = heappop(timers)[2]
                    if not handle.is_cancelled:
                        ready.append(handle)
                if self.steps > MAX_STEPS:
                    raise RuntimeError(f"{MAX_STEPS} callbacks after {self.now:.1f} s")
            if not self.stopped:
                self.now = max(self.now, end)
        finally:
            asyncio._set_running_loop(None)

    def _run(self, handle: Handle) -> None:
        if handle.is_cancelled or self.stopped:
            return
        process = handle.process
        if process is not None:
            if not process.is_alive:
                return
            if process.is_suspended:
                process.backlog.append(handle)
                return
        self.steps += 1
        try:
            if handle.context is None:
                handle.callback(*handle.arguments)
            else:
                handle.context.run(handle.callback, *handle.arguments)
        except Exception as error:
            self.call_exception_handler({"message": f"{handle.callback} failed", "exception": error})

    def add_ready(self, handles: list[Handle]) -> None:
        self._ready.extend(handles)

    def end(self) -> None:
        """Nothing runs any more, and nothing that is left can schedule anything."""
        self._is_over = True
        self._ready.clear()
        self._timers.clear()

    # -- what asyncio calls

    def time(self) -> float:
        return self.now

    def call_soon(
        self, callback: Callable[..., Any], *arguments: Any, context: contextvars.Context | None = None
    ) -> Handle:
        if context is None:
            context, process = copy_context(), process_here()
        else:
            process = context.get(_process)
        handle = Handle(self.now, callback, arguments, context, process)
        if not self._is_over:
            self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *arguments: Any, context: contextvars.Context | None = None
    ) -> Handle:
        return self.call_at(self.now + delay, callback, *arguments, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *arguments: Any, context: contextvars.Context | None = None
    ) -> Handle:
        if context is None:
            context, process = copy_context(), process_here()
        else:
            process = context.get(_process)
        handle = Handle(when, callback, arguments, context, process)
        self._schedule(when, handle)
        return handle

    def call_outside(self, when: float, callback: Callable[..., Any], arguments: Sequence[Any]) -> Handle:
        """As no process, so that it happens even if the caller's process is killed."""
        handle = Handle(when, callback, arguments, None, None)
        self._schedule(when, handle)
        return handle

    def _schedule(self, when: float, handle: Handle) -> None:
        if not self._is_over:
            self._timer_number += 1
            heappush(self._timers, (when if when > self.now else self.now, self._timer_number, handle))

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        process = _process.get()
        if process is not None:
            process.tasks.append(task)
            if len(process.tasks) > 500:
                process.tasks = [one for one in process.tasks if not one.done()]
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._is_over

    def is_closed(self) -> bool:
        return self._is_over

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_over:
            self.errors.append(context)

    # -- what the dialler calls

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        return [(2, 1, 6, "", (host, port))]

    async def sock_connect(self, sock: Any, address: Any) -> None:
        process = _process.get()
        assert self.connect is not None
        assert process is not None
        await self.connect(process, f"{address[0]}:{address[1]}")


@contextmanager
def virtual(loop: VirtualLoop, seed: str) -> Iterator[None]:
    """While it lasts, the clocks are the loop's and chance is decided by the seed."""
    chance = random.Random(f"{seed}/tokens")

    def wall_clock() -> float:
        process = _process.get()
        return EPOCH_S + loop.now + (process.clock_offset_s if process else 0.0)

    def token_hex(nbytes: int | None = None) -> str:
        size = nbytes or 32
        return f"{chance.getrandbits(8 * size):0{2 * size}x}"

    before = (time.monotonic, time.time, secrets.token_hex, random.getstate())
    time.monotonic, time.time = loop.time, wall_clock
    secrets.token_hex = token_hex
    random.seed(f"{seed}/service")
    try:
        yield
    finally:
        time.monotonic, time.time, secrets.token_hex, state = before
        random.setstate(state)


def current_process() -> Process | None:
    return _process.get()
