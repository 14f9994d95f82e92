"""One run of a plan: the fleet, the store and the network between them, in virtual time. The checker watches it."""

import asyncio
import gc
import logging
import random
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, Final, TypeVar
from unittest.mock import patch

from routebook.background import history_upkeep
from routebook.errors import RoutebookError
from routebook.model.broker import QueueData
from routebook.model.names import Caller
from routebook.store.connection.link import Word
from routebook.store.namespace import ScriptSet
from tests.simulation.checker import Checker, Result
from tests.simulation.fleet import REQUEST_TIMEOUT_S, Broker, BrokerConnection, Worker
from tests.simulation.lua_store import LuaScripts, MemoryStore, Snapshot
from tests.simulation.network import STORE, Network, StoreServer
from tests.simulation.plan import Event, Plan
from tests.simulation.reader import HistoryReader
from tests.simulation.virtual_time import EPOCH_S, Process, VirtualLoop, virtual

ENTRIES_PER_NODE: Final = 5
"""So that a history of some dozen entries is trimmed."""
LOOKUP_PERIOD_S: Final = 0.4
OPERATOR_PERIOD_S: Final = 3.0
KEY_VALUE_PERIOD_S: Final = 0.8
"""Where a reader follows the history, it is filled with key-values."""
UPKEEP: Final[dict[str, Any]] = {
    "TRIM_PERIOD_S": 4.0,
    "CHECK_PERIOD_S": 1.0,
    "AFTER_A_LOSS_MS": 3_000,
    "PAUSE_AFTER_FAILURE_S": 2.0,
}
"""The leader maintains the history more often than usual, as runs are short."""
MANY_CHANGES: Final = 20
"""More than the history keeps without a reader; twice as many are more than it keeps for a reader."""
SLOW_AROUND_S: Final = 3.0
"""A deadline may be this far from the moment at which its broker continues."""
OPERATOR: Final = Caller("operator", "10.9.9.9:1")

_Result = TypeVar("_Result")


@cache
def lua() -> LuaScripts:
    return LuaScripts()


@cache
def scripts() -> ScriptSet:
    return ScriptSet.load()


class World:
    def __init__(self, plan: Plan, script_set: ScriptSet | None = None) -> None:
        self.plan = plan
        self.loop = VirtualLoop()
        self.network = Network(self.loop, str(plan.seed))
        self.chance = random.Random(f"{plan.seed}/fleet")
        self.scripts = script_set or scripts()
        self.clock_offset_ms = 0
        self.checker = Checker(self)
        self.store = StoreServer(self.network, self._new_store(), self._ran)
        self.old_primary: StoreServer | None = None
        self._split_worker = ""
        self._stops = 0
        self._snapshots: dict[int, Snapshot] = {}
        self.configs = {group: 1 for group, _ in plan.brokers}
        self.workers: dict[str, Worker] = {}
        """The current start of each worker."""
        self._starts = 0
        self._connections = 0
        self._outside = Process(self.loop, "outside")
        self._ended: list[Process] = [self._outside]
        numbered = enumerate(plan.brokers, 1)
        self.brokers = {
            f"{group}/{broker_id}": Broker(self, group, broker_id, number) for number, (group, broker_id) in numbered
        }
        self.loop.connect = self._dial
        self.reader = HistoryReader(self) if plan.reader else None

    def _new_store(self) -> MemoryStore:
        return MemoryStore(self._store_clock, lua(), entries_per_node=ENTRIES_PER_NODE)

    def _store_clock(self) -> int:
        return int((EPOCH_S + self.loop.now) * 1000) + self.clock_offset_ms

    # -- the run

    def run(self) -> Result:
        with virtual(self.loop, str(self.plan.seed)), patch.multiple(history_upkeep, **UPKEEP):
            for number in range(1, self.plan.workers + 1):
                self.start_worker(f"worker-{number}")
            for broker in self.brokers.values():
                self._at(0.1 + 0.5 * self.chance.random(), broker.start)
            self._outside.spawn(self._look_up())
            self._outside.spawn(self._operate())
            if self.reader:
                self._outside.spawn(self.reader.run())
                self._outside.spawn(self._fill_history())
            for number, event in enumerate(self.plan.events):
                if event.kind == "fail-over":
                    self._at(max(event.at - event.values["lost"], 0.5), self._take_snapshot, number)
                self._at(event.at, self._carry_out, number, event)
            end = self.plan.end_of_events
            self._at(end, self._calm_down)
            end_of_calm = end + self.plan.calm_s
            self._at(end_of_calm - 1.0, self._change_once_more)
            try:
                self.loop.run_until(end_of_calm)
                if not self.loop.stopped:
                    self.checker.check_end()
            finally:
                self.loop.end()
        for error in self.loop.errors:
            self.checker.violated("background", f"{error.get('message')}: {error.get('exception')!r}.")
        return self.checker.result(self.loop.steps)

    def _at(self, when: float, callback: Callable[..., Any], *arguments: Any) -> None:
        self.network.at(when, callback, *arguments)

    def _calm_down(self) -> None:
        """Whatever overlaps, nothing fails from now on."""
        self.network.heal_all()
        self.network.store_delay_s = 0.0
        for worker in self.workers.values():
            if worker.process.is_suspended:
                worker.process.resume()
        for broker in self.brokers.values():
            if broker.process.is_suspended:
                broker.process.resume()

    def _change_once_more(self) -> None:
        """All workers have to show it within a second."""
        self._outside.spawn(self._put_many(-1, 1))

    def drop_tasks(self) -> None:
        """Drops what the processes were doing when the run ended, without asyncio's warnings about pending tasks."""
        for process in [*self._ended, *(broker.process for broker in self.brokers.values())]:
            for task in process.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            process.tasks.clear()

    # -- workers

    def start_worker(self, place: str) -> None:
        current = self.workers.get(place)
        if current is not None and current.process.is_alive:
            return
        self._starts += 1
        worker = self.workers[place] = Worker(self, place, self._starts)
        self._ended.append(worker.process)
        worker.start()

    def worker_ended(self, worker: Worker, seconds: float) -> None:
        worker.kill()
        self._at(self.loop.now + seconds, self.start_worker, worker.place)

    def running_workers(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.process.is_alive]

    def primary_of(self, place: str) -> StoreServer:
        return self.old_primary if self.old_primary and place == self._split_worker else self.store

    # -- requests

    async def connect(self, broker: Broker) -> BrokerConnection:
        """To any worker that accepts connections, as through a balancer."""
        places = list(self.workers)
        self.chance.shuffle(places)
        for place in places:
            worker = self.workers[place]
            await asyncio.sleep(2 * self.network.delay())
            if self.network.is_cut(broker.host, place) or not worker.serves:
                continue
            self._connections += 1
            return BrokerConnection(self._connections, broker, worker)
        raise ConnectionError("No worker accepts connections.")

    async def request(
        self, broker: Broker, connection: BrokerConnection, work: Callable[[], Awaitable[_Result]]
    ) -> _Result:
        """The worker does the work when the request arrives. The reply may be lost, or be late."""
        worker, answer = connection.worker, self.loop.create_future()

        async def serve() -> None:
            outcome: Any
            try:
                outcome = await work()
            except RoutebookError as error:
                outcome = error
            self.network.deliver(worker.place, broker.host, take, outcome)

        def take(outcome: Any) -> None:
            if answer.done() or not connection.is_open_at_broker:
                return
            if isinstance(outcome, RoutebookError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        def arrive() -> None:
            if worker.process.is_alive and connection.is_open_at_worker:
                worker.process.spawn(serve())

        if not connection.is_open_at_broker:
            raise ConnectionError("The connection is closed.")
        self.network.deliver(broker.host, worker.place, arrive)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                result: _Result = await answer
                return result
        except TimeoutError:
            raise ConnectionError("No answer in time.") from None

    async def _dial(self, process: Process, address: str) -> None:
        place = process.name.partition(".")[0]
        await asyncio.sleep(2 * self.network.delay())
        host = address.rpartition(":")[0]
        if self.network.is_cut(place, host):
            await self.loop.create_future()
        if not any(broker.is_running and broker.address == address for broker in self.brokers.values()):
            raise ConnectionRefusedError(address)

    async def _look_up(self) -> None:
        """A client that asks any worker for any topic."""
        while True:
            await asyncio.sleep(LOOKUP_PERIOD_S * (0.5 + self.chance.random()))
            self.checker.watch_service()
            serving = [worker for worker in self.workers.values() if worker.serves]
            broker = self.chance.choice(list(self.brokers.values()))
            # A new topic is where a worker that has missed something shows it.
            topic = broker.topics[-1] if self.chance.random() < 0.3 else self.chance.choice(broker.topics)
            if serving:
                self.checker.looked_up(self.chance.choice(serving), broker, topic)

    async def _operate(self) -> None:
        """An operator who releases what is held, some seconds after the alarm."""
        while True:
            await asyncio.sleep(OPERATOR_PERIOD_S)
            if self.store.is_up and self.checker.is_held() and self.loop.now > self.plan.end_of_events:
                await self._administrate(lambda worker: worker.registry.release_expiry(OPERATOR))

    async def _fill_history(self) -> None:
        number = 0
        while self.loop.now < self.plan.end_of_events:
            await asyncio.sleep(KEY_VALUE_PERIOD_S)
            number += 1
            await self._administrate(partial(self._put_number, number))

    async def _put_many(self, number: int, many: int) -> None:
        """Many changes at once, so that the history is trimmed."""

        async def put_all(worker: Worker) -> None:
            for count in range(many):
                await worker.registry.put_kv("sim", "burst", f"{number}.{count}", OPERATOR)

        await self._administrate(put_all)

    async def _put_number(self, number: int, worker: Worker) -> None:
        await worker.registry.put_kv("sim", "number", str(number), OPERATOR)

    async def _administrate(self, verb: Callable[[Worker], Awaitable[Any]]) -> None:
        serving = [worker for worker in self.workers.values() if worker.serves]
        if serving:
            worker = self.chance.choice(serving)

            async def work() -> None:
                with suppress(RoutebookError):
                    await verb(worker)

            worker.process.spawn(work())

    # -- the store

    def _ran(self, server: StoreServer, words: Sequence[Word], reply: Any) -> None:
        if words[0] in ("EVALSHA", "EVAL"):
            self.checker.script_ran(server, words, reply)

    def _take_snapshot(self, number: int) -> None:
        self._snapshots[number] = self.store.store.snapshot()

    def _stop_store(self, seconds: float) -> None:
        """Stops may overlap, with each other and with a split."""
        self.store.stop()
        self._stops += 1

        def start() -> None:
            self._stops -= 1
            if not self._stops:
                self.store.start()

        self._at(self.loop.now + seconds, start)

    # -- events

    def _carry_out(self, number: int, event: Event) -> None:
        values = event.values
        seconds = values.get("seconds", 0.0)
        worker = self.workers.get(values.get("worker", ""))
        broker = self.brokers.get(values.get("broker", ""))
        self.checker.event(event, worker, broker)
        HANDLERS[event.kind](self, number, event, seconds, worker, broker)

    def _later(self, seconds: float, callback: Callable[..., Any], *arguments: Any) -> None:
        self._at(self.loop.now + seconds, callback, *arguments)


def _kill_worker(world: World, _n: int, _e: Event, seconds: float, worker: Worker, _b: Any) -> None:
    if worker.process.is_alive:
        worker.kill()
    world._later(seconds, world.start_worker, worker.place)


def _stop_worker(world: World, _n: int, _e: Event, seconds: float, worker: Worker, _b: Any) -> None:
    if worker.is_ready and not worker.is_stopping and worker.process.is_alive:
        worker.process.spawn(worker.stop())

    def kill_and_start() -> None:
        if worker.process.is_alive:
            worker.kill()
        world.start_worker(worker.place)

    world._later(seconds, kill_and_start)


def _suspend_worker(world: World, _n: int, _e: Event, seconds: float, worker: Worker, _b: Any) -> None:
    worker.process.suspend()
    world._later(seconds, worker.process.resume)


def _kill_all_workers(world: World, _n: int, _e: Event, seconds: float, _w: Any, _b: Any) -> None:
    for worker in list(world.workers.values()):
        if worker.process.is_alive:
            worker.kill()
        world._later(seconds, world.start_worker, worker.place)


def _cut_worker(world: World, _n: int, _e: Event, seconds: float, worker: Worker, _b: Any) -> None:
    world.network.cut(worker.place, STORE)
    world._later(seconds, world.network.heal, worker.place, STORE)


def _reset_worker(world: World, _n: int, _e: Event, _s: float, worker: Worker, _b: Any) -> None:
    world.store.reset_connections(worker.place)


def _cut_broker(world: World, _n: int, _e: Event, seconds: float, worker: Worker, broker: Broker) -> None:
    _cut_host(world, broker.host, [worker.place], seconds)


def _isolate_broker(world: World, _n: int, _e: Event, seconds: float, _w: Any, broker: Broker) -> None:
    _cut_host(world, broker.host, list(world.workers), seconds)


def _cut_host(world: World, host: str, places: list[str], seconds: float) -> None:
    for place in places:
        world.network.cut(host, place)
        world._later(seconds, world.network.heal, host, place)


def _kill_broker(world: World, _n: int, _e: Event, seconds: float, _w: Any, broker: Broker) -> None:
    if broker.is_running:
        broker.kill()
        world._later(seconds, _start_broker, broker)


def _start_broker(broker: Broker) -> None:
    if not broker.is_running:
        broker.start()


def _end_broker(world: World, _n: int, _e: Event, _s: float, _w: Any, broker: Broker) -> None:
    if broker.is_running:
        broker.kill()


def _hang_broker(world: World, _n: int, _e: Event, seconds: float, _w: Any, broker: Broker) -> None:
    process = broker.process
    process.suspend()
    world._later(seconds, process.resume)


def _move_broker(world: World, _n: int, _e: Event, seconds: float, _w: Any, broker: Broker) -> None:
    if broker.is_running:
        broker.kill()
        broker.moves += 1
        world._later(seconds, _start_broker, broker)


def _unregister_broker(world: World, _n: int, _e: Event, seconds: float, _w: Any, broker: Broker) -> None:
    if broker.is_running and not broker.process.is_suspended:
        broker.process.spawn(broker.unregister())
        world._later(seconds + REQUEST_TIMEOUT_S, _start_broker, broker)


def _change_topics(world: World, _n: int, _e: Event, _s: float, _w: Any, broker: Broker) -> None:
    world.configs[broker.group] += 1
    for other in world.brokers.values():
        if other.group == broker.group and other.is_running:
            other.process.call(other.register_soon)


def _drop_connections(world: World, _n: int, _e: Event, _s: float, _w: Any, _b: Any) -> None:
    for worker in world.workers.values():
        for connection in list(worker.connections):
            connection.reset()


def _restart_store(world: World, _n: int, _e: Event, seconds: float, _w: Any, _b: Any) -> None:
    world.store.store.loaded.clear()
    world._stop_store(seconds)


def _fail_over(world: World, number: int, event: Event, seconds: float, _w: Any, _b: Any) -> None:
    snapshot = world._snapshots.pop(number)
    world._stop_store(seconds)
    world.store.store.restore(snapshot)
    since = world.loop.now - event.values["lost"]
    world.checker.store_restored(world.store, since)
    world.checker.store_lost_writes(lambda ack: ack.received_at < since and ack.store is world.store)


def _empty_store(world: World, _n: int, _e: Event, seconds: float, _w: Any, _b: Any) -> None:
    world._stop_store(seconds)
    world.store.store.restore(Snapshot({}, {}))
    world.checker.store_restored(world.store, 0.0)
    world.checker.store_lost_writes(lambda _: False)


def _split_store(world: World, _n: int, _e: Event, seconds: float, worker: Worker, _b: Any) -> None:
    """The worker's connections lead to the old primary; a promoted copy serves the others."""
    if world.old_primary is not None:
        return
    old = world.store
    promoted = world._new_store()
    promoted.restore(old.store.snapshot())
    world.old_primary, world._split_worker = old, worker.place
    world.store = StoreServer(world.network, promoted, world._ran)
    if world._stops:
        world.store.stop()
    world.store.is_up = old.is_up
    for connection in [one for one in old.connections if one.place != worker.place]:
        old.reset_connections(connection.place)
    split_at = world.loop.now
    world.checker.store_restored(old, split_at)
    world.checker.store_lost_writes(lambda _: True, until=world.loop.now + seconds)

    def heal() -> None:
        world.old_primary = None
        old.stop()
        world.checker.store_lost_writes(lambda ack: ack.received_at < split_at or ack.store is not old)

    world._later(seconds, heal)


def _slow_store(world: World, _n: int, event: Event, seconds: float, _w: Any, _b: Any) -> None:
    world.network.store_delay_s = event.values["delay"]

    def end() -> None:
        world.network.store_delay_s = 0.0

    world._later(seconds, end)


def _miss_changes(world: World, number: int, event: Event, seconds: float, worker: Worker, broker: Broker) -> None:
    _cut_worker(world, number, event, seconds, worker, broker)
    world._later(0.5, _change_topics, world, number, event, seconds, worker, broker)
    world._later(1.5, world._outside.spawn_later, world._put_many, number, MANY_CHANGES)


def _reader_away(world: World, number: int, _e: Event, seconds: float, _w: Any, _b: Any) -> None:
    if world.reader:
        world.reader.away_until = world.loop.now + seconds
        world._later(1.0, world._outside.spawn_later, world._put_many, number, 2 * MANY_CHANGES)


def _nearly_expire(world: World, number: int, event: Event, seconds: float, worker: Any, broker: Broker) -> None:
    """The broker continues while the leader decides about it."""
    _hang_broker(world, number, event, seconds, worker, broker)
    world._later(seconds - SLOW_AROUND_S, _slow_store, world, number, event, 2 * SLOW_AROUND_S, worker, broker)


def _forget_scripts(world: World, _n: int, _e: Event, _s: float, _w: Any, _b: Any) -> None:
    world.store.store.loaded.clear()


def _jump_store_clock(world: World, _n: int, event: Event, _s: float, _w: Any, _b: Any) -> None:
    world.clock_offset_ms += int(event.values["jump"] * 1000)


def _jump_worker_clock(world: World, _n: int, event: Event, _s: float, worker: Worker, _b: Any) -> None:
    worker.process.clock_offset_s += event.values["jump"]


def _put_kv(world: World, number: int, _e: Event, _s: float, _w: Any, _b: Any) -> None:
    world._outside.spawn(
        world._administrate(lambda worker: worker.registry.put_kv("sim", f"key-{number}", "value", OPERATOR))
    )


def _delete_topic(world: World, _n: int, _e: Event, _s: float, _w: Any, broker: Broker) -> None:
    world.checker.topic_deleted(broker.topics[0])
    world._outside.spawn(
        world._administrate(lambda worker: worker.registry.delete_topic(broker.topics[0], None, OPERATOR))
    )


def _register_topic(world: World, number: int, _e: Event, _s: float, _w: Any, broker: Broker) -> None:
    queues = {broker.group: QueueData(4, 4)}
    world._outside.spawn(
        world._administrate(lambda worker: worker.registry.register_topic(f"by-request-{number}", queues, OPERATOR))
    )


HANDLERS: Final[dict[str, Callable[..., None]]] = {
    "kill-worker": _kill_worker,
    "stop-worker": _stop_worker,
    "suspend-worker": _suspend_worker,
    "kill-all-workers": _kill_all_workers,
    "cut-worker": _cut_worker,
    "reset-worker": _reset_worker,
    "cut-broker": _cut_broker,
    "isolate-broker": _isolate_broker,
    "kill-broker": _kill_broker,
    "end-broker": _end_broker,
    "hang-broker": _hang_broker,
    "move-broker": _move_broker,
    "unregister-broker": _unregister_broker,
    "change-topics": _change_topics,
    "drop-connections": _drop_connections,
    "restart-store": _restart_store,
    "fail-over": _fail_over,
    "empty-store": _empty_store,
    "split-store": _split_store,
    "slow-store": _slow_store,
    "miss-changes": _miss_changes,
    "reader-away": _reader_away,
    "nearly-expire": _nearly_expire,
    "forget-scripts": _forget_scripts,
    "jump-store-clock": _jump_store_clock,
    "jump-worker-clock": _jump_worker_clock,
    "put-kv": _put_kv,
    "delete-topic": _delete_topic,
    "register-topic": _register_topic,
}


@contextmanager
def quiet() -> Iterator[None]:
    """Without logs, and without the complaints of coroutines that end with their process."""
    hook, level = sys.unraisablehook, logging.root.manager.disable
    sys.unraisablehook = lambda _: None
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()  # so that a collection after some runs looks at what these runs have left, not at all modules
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*never awaited", category=RuntimeWarning)
            yield
    finally:
        logging.disable(level)
        gc.enable()
        gc.unfreeze()
        gc.collect()
        sys.unraisablehook = hook


def run_plan(plan: Plan, script_set: ScriptSet | None = None) -> Result:
    """Equal plans give equal results."""
    world = World(plan, script_set)
    result = world.run()
    world.drop_tasks()
    return result
