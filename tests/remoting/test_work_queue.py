"""Turns: in order within a connection, fair between connections, signs of life first, bounded."""

import asyncio
from collections.abc import Awaitable, Callable

from routebook.protocol.command import Request, RequestCode
from routebook.remoting.work_queue import Line, WorkQueue
from tests.support.waiting import until

SLOW, QUICK = RequestCode.REGISTER_BROKER, RequestCode.BROKER_HEARTBEAT
Handle = Callable[[Request], Awaitable[None]]


class Handled:
    """Requests in the order they were begun, by opaque number; those of a held code wait until let go."""

    def __init__(self, held: frozenset[int] = frozenset()) -> None:
        self.begun: list[int] = []
        self.at_once = 0
        self.most_at_once = 0
        self.let_go = asyncio.Event()
        self._held = held

    def line(self) -> Line:
        return Line(self.handle)

    async def handle(self, request: Request) -> None:
        self.begun.append(request.opaque)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if request.code in self._held:
            await self.let_go.wait()
        await asyncio.sleep(0)
        self.at_once -= 1


def queue_of(*, runners: int = 4, capacity: int = 1000, max_bytes: int = 2**20) -> WorkQueue:
    return WorkQueue(runners=runners, capacity=capacity, max_bytes=max_bytes)


async def test_requests_of_a_line_are_handled_one_after_the_other() -> None:
    handled, queue = Handled(), queue_of()
    line = handled.line()
    for number in range(50):
        assert queue.put(line, Request(SLOW, number))
    await queue.join()
    assert handled.begun == list(range(50))
    assert handled.most_at_once == 1


async def test_lines_take_turns() -> None:
    handled, queue = Handled(), queue_of(runners=1)
    greedy, modest = handled.line(), handled.line()
    for number in range(100):
        queue.put(greedy, Request(SLOW, number))
    queue.put(modest, Request(SLOW, 1000))
    await queue.join()
    assert handled.begun.index(1000) <= 2


async def test_no_more_run_at_once_than_there_are_runners() -> None:
    handled, queue = Handled(), queue_of(runners=3)
    for number in range(30):
        queue.put(handled.line(), Request(QUICK, number))
    await queue.join()
    assert handled.most_at_once == 3
    assert sorted(handled.begun) == list(range(30))


async def test_signs_of_life_are_handled_while_registrations_hold_all_other_runners() -> None:
    handled, queue = Handled(held=frozenset({SLOW})), queue_of(runners=3)
    for number in range(10):
        queue.put(handled.line(), Request(SLOW, number))
    for number in range(100, 120):
        queue.put(handled.line(), Request(QUICK, number))
    await until(lambda: len(handled.begun) == 22)
    assert sorted(handled.begun)[:2] == [0, 1]
    handled.let_go.set()
    await queue.join()
    assert len(handled.begun) == 30


async def test_one_runner_alone_handles_both() -> None:
    handled, queue = Handled(), queue_of(runners=1)
    queue.put(handled.line(), Request(SLOW, 1))
    queue.put(handled.line(), Request(QUICK, 2))
    await queue.join()
    assert sorted(handled.begun) == [1, 2]


async def test_it_takes_no_more_than_its_length_and_its_bytes() -> None:
    handled = Handled(held=frozenset({SLOW}))
    short = queue_of(runners=1, capacity=2)
    taken = [short.put(handled.line(), Request(SLOW, number)) for number in range(4)]
    assert taken == [True, True, False, False]  # Nothing has been begun: that is for the next step of the loop.
    narrow = queue_of(runners=1, max_bytes=10_000)
    assert narrow.put(handled.line(), Request(SLOW, 1, body=b"x" * 9_000))
    assert not narrow.put(handled.line(), Request(SLOW, 2, body=b"x" * 9_000))
    assert narrow.refused == 1
    handled.let_go.set()
    await short.join()
    await narrow.join()
    assert (narrow.length, narrow.queued_bytes, short.queued_bytes) == (0, 0, 0)


async def test_a_line_whose_peer_takes_nothing_waits_alone() -> None:
    handled, queue = Handled(), queue_of()
    blocked, well = handled.line(), handled.line()
    blocked.blocked = True
    for number in range(5):
        queue.put(blocked, Request(SLOW, number))
        queue.put(well, Request(SLOW, 100 + number))
    await until(lambda: len(handled.begun) == 5)
    assert handled.begun == [100, 101, 102, 103, 104]
    queue.unblock(blocked)
    await queue.join()
    assert handled.begun[5:] == [0, 1, 2, 3, 4]


async def test_how_long_the_head_has_waited() -> None:
    handled, queue = Handled(held=frozenset({SLOW})), queue_of(runners=1)
    queue.put(handled.line(), Request(SLOW, 1))
    queue.put(handled.line(), Request(SLOW, 2))
    await until(lambda: queue.slow_ms() >= 5)
    handled.let_go.set()
    await queue.join()
    assert queue.slow_ms() == 0


async def test_one_line_leaves_room_for_others() -> None:
    handled, queue = Handled(held=frozenset({SLOW})), queue_of(runners=1, capacity=1000, max_bytes=2**30)
    greedy, modest = handled.line(), handled.line()
    taken = sum(queue.put(greedy, Request(SLOW, number)) for number in range(5000))
    assert 490 <= taken <= 510
    assert all(queue.put(modest, Request(SLOW, 10_000 + number)) for number in range(100))
    handled.let_go.set()
    await queue.join()
    assert len(handled.begun) == taken + 100


async def test_after_the_end_nothing_is_begun() -> None:
    handled, queue = Handled(held=frozenset({SLOW})), queue_of(runners=2)
    line = handled.line()
    for number in range(10):
        queue.put(line, Request(SLOW, number))
    await until(lambda: handled.begun == [0])
    queue.close()
    await until(lambda: not queue._tasks)
    assert handled.begun == [0]
