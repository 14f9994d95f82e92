"""The work queue: in order within a connection, fair between connections, heartbeats first, bounded."""

import asyncio
from collections.abc import Awaitable, Callable

from routebook.protocol.frame import Request, RequestCode
from routebook.remoting.requests import ConnectionQueue, Lane, Turn, WorkQueue
from tests.support.waiting import until

REGISTRATION, HEARTBEAT = RequestCode.REGISTER_BROKER, RequestCode.BROKER_HEARTBEAT
DEREGISTRATION, LIST = RequestCode.UNREGISTER_BROKER, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
Handle = Callable[[Request, Turn], Awaitable[None]]


class Handled:
    """Records requests by their opaque number, in the order they began. Those with a held code wait for `released`, the
    registrations among them in the lane of changes.
    """

    def __init__(self, held: frozenset[int] = frozenset()) -> None:
        self.begun: list[int] = []
        self.refused: list[int] = []
        self.running = 0
        self.most_running = 0
        self.released = asyncio.Event()
        self._held = held

    def connection(self) -> ConnectionQueue:
        return ConnectionQueue(self.handle)

    async def handle(self, request: Request, turn: Turn) -> None:
        if request.code == REGISTRATION and request.code in self._held and not await turn.move_to(Lane.CHANGES):
            self.refused.append(request.opaque)
            return
        self.begun.append(request.opaque)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        if request.code in self._held:
            await self.released.wait()
        await asyncio.sleep(0)
        self.running -= 1


def work_queue(*, runners: int = 4, capacity: int = 1000, max_bytes: int = 2**20) -> WorkQueue:
    return WorkQueue(runners=runners, capacity=capacity, max_bytes=max_bytes)


async def test_requests_of_a_connection_are_handled_one_after_the_other() -> None:
    handled, queue = Handled(), work_queue()
    connection = handled.connection()
    for number in range(50):
        assert queue.put(connection, Request(REGISTRATION, number))
    await queue.join()
    assert handled.begun == list(range(50))
    assert handled.most_running == 1


async def test_connections_take_turns() -> None:
    handled, queue = Handled(), work_queue(runners=1)
    greedy, modest = handled.connection(), handled.connection()
    for number in range(100):
        queue.put(greedy, Request(REGISTRATION, number))
    queue.put(modest, Request(REGISTRATION, 1000))
    await queue.join()
    assert handled.begun.index(1000) <= 2


async def test_no_more_requests_run_at_once_than_there_are_runners() -> None:
    handled, queue = Handled(), work_queue(runners=3)
    for number in range(30):
        queue.put(handled.connection(), Request(HEARTBEAT, number))
    await queue.join()
    assert handled.most_running == 3
    assert sorted(handled.begun) == list(range(30))


async def test_heartbeats_are_handled_while_changed_registrations_occupy_all_their_runners() -> None:
    handled, queue = Handled(held=frozenset({REGISTRATION})), work_queue(runners=3)
    for number in range(10):
        queue.put(handled.connection(), Request(REGISTRATION, number))
    for number in range(100, 120):
        queue.put(handled.connection(), Request(HEARTBEAT, number))
    await until(lambda: len(handled.begun) == 23)
    assert sorted(handled.begun)[:3] == [0, 1, 2]
    handled.released.set()
    await queue.join()
    assert len(handled.begun) == 30


async def test_a_single_runner_handles_heartbeats_and_other_requests() -> None:
    handled, queue = Handled(), work_queue(runners=1)
    queue.put(handled.connection(), Request(REGISTRATION, 1))
    queue.put(handled.connection(), Request(HEARTBEAT, 2))
    await queue.join()
    assert sorted(handled.begun) == [1, 2]


async def test_requests_beyond_the_length_or_the_bytes_are_refused() -> None:
    handled = Handled(held=frozenset({LIST}))
    short = work_queue(runners=1, capacity=2)
    taken = [short.put(handled.connection(), Request(LIST, number)) for number in range(5)]
    assert taken == [True, True, True, False, False]  # One is being handled.
    narrow = work_queue(runners=1, max_bytes=10_000)
    assert narrow.put(handled.connection(), Request(LIST, 1, body=b"x" * 9_000))
    assert not narrow.put(handled.connection(), Request(LIST, 2, body=b"x" * 9_000))
    assert narrow.refused == 1
    handled.released.set()
    await short.join()
    await narrow.join()
    assert (narrow.length, narrow.queued_bytes, short.queued_bytes) == (0, 0, 0)


async def test_full_lanes_refuse_no_heartbeat() -> None:
    handled, queue = Handled(held=frozenset({LIST, REGISTRATION})), work_queue(runners=1, capacity=2)
    for number in range(5):
        queue.put(handled.connection(), Request(LIST, number))
        queue.put(handled.connection(), Request(REGISTRATION, 10 + number))
    assert all(queue.put(handled.connection(), Request(HEARTBEAT, 100 + number)) for number in range(20))
    await until(lambda: len(handled.begun) == 22)
    assert len(handled.refused) == 2
    handled.released.set()
    await queue.join()


async def test_changed_registrations_beyond_the_bytes_are_refused() -> None:
    handled, queue = Handled(held=frozenset({REGISTRATION})), work_queue(runners=4, max_bytes=10_000)
    for number in range(3):
        queue.put(handled.connection(), Request(REGISTRATION, number, body=b"x" * 4_000))
        await asyncio.sleep(0)
    await until(lambda: bool(handled.refused))
    assert (handled.begun, handled.refused) == ([0, 1], [2])
    handled.released.set()
    await queue.join()
    assert queue.queued_bytes == 0


async def test_only_deregistrations_are_handled_for_a_peer_that_has_left() -> None:
    handled, queue = Handled(held=frozenset({LIST, REGISTRATION})), work_queue(runners=1)
    queue.put(handled.connection(), Request(LIST, 1))
    leaving, waiting = handled.connection(), handled.connection()
    for number, code in enumerate((LIST, DEREGISTRATION, HEARTBEAT, LIST, DEREGISTRATION)):
        queue.put(leaving, Request(code, 10 + number, body=b"x" * 1_000))
    for number in range(2):
        queue.put(handled.connection(), Request(REGISTRATION, 30 + number))
        queue.put(waiting, Request(REGISTRATION, 20 + number))
    await until(lambda: handled.begun == [1, 30])
    queue.peer_left(leaving)
    queue.peer_left(waiting)
    handled.released.set()
    await queue.join()
    assert sorted(handled.begun) == [1, 11, 14, 30, 31]
    assert (queue.length, queue.queued_bytes) == (0, 0)


async def test_the_queue_of_a_closed_connection_does_not_refer_to_it() -> None:
    handled, queue = Handled(), work_queue()
    idle, busy = handled.connection(), handled.connection()
    queue.put(busy, Request(DEREGISTRATION, 1))
    for one in (idle, busy):
        queue.peer_left(one)
    await queue.join()
    assert idle.handle != handled.handle
    assert busy.handle != handled.handle


async def test_a_connection_whose_peer_does_not_read_waits_alone() -> None:
    handled, queue = Handled(), work_queue()
    blocked, other = handled.connection(), handled.connection()
    blocked.blocked = True
    for number in range(5):
        queue.put(blocked, Request(REGISTRATION, number))
        queue.put(other, Request(REGISTRATION, 100 + number))
    await until(lambda: len(handled.begun) == 5)
    assert handled.begun == [100, 101, 102, 103, 104]
    queue.unblock(blocked)
    await queue.join()
    assert handled.begun[5:] == [0, 1, 2, 3, 4]


async def test_slow_ms_is_the_waiting_time_of_the_oldest_request() -> None:
    handled, queue = Handled(held=frozenset({REGISTRATION})), work_queue(runners=1)
    queue.put(handled.connection(), Request(REGISTRATION, 1))
    queue.put(handled.connection(), Request(REGISTRATION, 2))
    await until(lambda: queue.slow_ms() >= 5)
    handled.released.set()
    await queue.join()
    assert queue.slow_ms() == 0


async def test_one_connection_leaves_room_for_others() -> None:
    handled, queue = (
        Handled(held=frozenset({REGISTRATION})),
        work_queue(runners=1, capacity=1000, max_bytes=2**30),
    )
    greedy, modest = handled.connection(), handled.connection()
    taken = sum(queue.put(greedy, Request(REGISTRATION, number)) for number in range(5000))
    assert 490 <= taken <= 510
    assert all(queue.put(modest, Request(REGISTRATION, 10_000 + number)) for number in range(100))
    handled.released.set()
    await queue.join()
    assert len(handled.begun) == taken + 100


async def test_a_closed_queue_begins_no_request() -> None:
    handled, queue = Handled(held=frozenset({REGISTRATION})), work_queue(runners=2)
    connection = handled.connection()
    for number in range(10):
        queue.put(connection, Request(REGISTRATION, number))
    await until(lambda: handled.begun == [0])
    queue.close()
    await until(lambda: not queue._tasks)
    assert handled.begun == [0]
