"""Requesting and forcing a stop."""

import asyncio
import os
import signal

from routebook.runtime.stopping import Stop
from tests.support.waiting import until


async def test_the_first_signal_requests_a_stop_and_the_second_forces_it() -> None:
    stop = Stop()
    forced: list[str] = []
    stop.on_force(lambda: forced.append("now"))
    with stop.on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        await until(stop.asked.is_set)
        assert not stop.forced.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        await until(stop.forced.is_set)
    assert forced == ["now"]


async def test_under_nohup_a_closed_terminal_is_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = Stop()
        with stop.on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            await until(stop.asked.is_set)
        assert not stop.forced.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_requesting_a_stop_twice_does_not_force_it() -> None:
    stop = Stop()
    stop.ask("one reason")
    stop.ask("another reason")
    assert stop.asked.is_set()
    assert not stop.forced.is_set()


async def test_work_that_ends_in_time_is_waited_for() -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(1)

    assert await Stop().within(5, work(), "Work")
    assert done == [1]


async def test_work_past_its_deadline_is_cut_off() -> None:
    assert not await Stop().within(0.01, asyncio.sleep(60), "Work")


async def test_force_cuts_off_work_at_once() -> None:
    stop = Stop()
    asyncio.get_running_loop().call_soon(stop.forced.set)
    assert not await stop.within(60, asyncio.sleep(60), "Work")


async def test_work_that_fails_does_not_stop_the_stop() -> None:
    async def work() -> None:
        raise RuntimeError("broken")

    assert not await Stop().within(5, work(), "Work")
