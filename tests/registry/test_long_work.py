"""Long computations let other work pass, and run one at a time."""

import asyncio
import time
from collections.abc import Generator

import pytest

from routebook.model.broker import parts_of
from routebook.registry.registration import WEIGHT_OF_REFUSED_WORK, LongWork


def counting(name: str, steps: int, log: list[str]) -> Generator[None, None, str]:
    for number in range(steps):
        if number:
            yield
        log.append(f"{name}{number}")
    return name


async def test_the_result_is_that_of_the_generator() -> None:
    assert await LongWork().run(counting("a", 3, [])) == "a"


async def test_other_work_passes_between_two_steps() -> None:
    log: list[str] = []

    async def other() -> None:
        for number in range(2):
            log.append(f"other{number}")
            await asyncio.sleep(0)

    await asyncio.gather(LongWork().run(counting("a", 3, log)), other())
    assert log == ["a0", "other0", "a1", "other1", "a2"]


async def test_work_without_steps_does_not_wait_for_others() -> None:
    work, log = LongWork(), list[str]()
    long = asyncio.create_task(work.run(counting("long", 5, log)))
    await asyncio.sleep(0)
    await work.run(counting("short", 1, log))
    assert log == ["long0", "short0"]
    await long


async def test_only_one_computation_is_beyond_its_first_step() -> None:
    work, log = LongWork(), list[str]()
    await asyncio.gather(*(work.run(counting(name, 4, log)) for name in "abc"))
    assert log == ["a0", "b0", "c0", "a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "c3"]


async def test_an_error_ends_the_computation_and_the_next_one_goes_on() -> None:
    def failing() -> Generator[None, None, None]:
        yield
        raise ValueError("no topic")

    work = LongWork()
    with pytest.raises(ValueError, match="no topic"):
        await work.run(failing())
    assert await work.run(counting("a", 3, [])) == "a"


async def test_refused_work_costs_its_peer_many_times_its_time() -> None:
    def working(*, is_refused: bool) -> Generator[None, None, None]:
        yield
        began = time.thread_time()
        while time.thread_time() - began < 0.01:
            pass
        if is_refused:
            raise ValueError("no registration")

    charged: list[float] = []
    work = LongWork()
    await work.run(working(is_refused=False), charge=lambda seconds, _now: charged.append(seconds))
    with pytest.raises(ValueError, match="no registration"):
        await work.run(working(is_refused=True), charge=lambda seconds, _now: charged.append(seconds))
    accepted, refused = charged
    assert accepted >= 0.01
    assert refused >= 0.01 * WEIGHT_OF_REFUSED_WORK


async def test_the_time_that_other_work_takes_is_not_charged() -> None:
    charged: list[float] = []

    def other_work() -> None:
        began = time.thread_time()
        while time.thread_time() - began < 0.05:
            pass

    asyncio.get_running_loop().call_soon(other_work)
    await LongWork().run(counting("a", 3, []), charge=lambda seconds, _now: charged.append(seconds))
    assert 0 < charged[0] < 0.05


async def test_a_cancelled_computation_does_not_block_the_others() -> None:
    work = LongWork()
    first = asyncio.create_task(work.run(counting("a", 1000, [])))
    second = asyncio.create_task(work.run(counting("b", 3, [])))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "b"
    assert first.cancelled()


def test_parts_have_the_length_that_was_asked_for() -> None:
    assert list(parts_of(range(5), 2)) == [(0, 1), (2, 3), (4,)]
    assert list(parts_of([], 2)) == []
