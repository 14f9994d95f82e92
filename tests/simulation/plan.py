"""What happens in a run, decided by a seed: the size of the fleet, and events that read as plain sentences."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

CALM_S: Final = 20.0
"""After the last event nothing fails any more. All is as it should be 15 s later at most, as 700 seeds showed."""
CALM_WITH_READER_S: Final = 26.0
"""A new history gets its baseline after two recovery windows."""
START_S: Final = 4.0
"""The fleet registers before the first event."""


@dataclass(frozen=True, slots=True)
class Event:
    at: float
    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ends_at(self) -> float:
        seconds: float = self.values.get("seconds", 0.0)
        return self.at + seconds

    def __str__(self) -> str:
        return f"At {self.at:5.1f} s {SENTENCES[self.kind].format(**self.values)}"


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    workers: int
    brokers: tuple[tuple[str, int], ...]
    """Group and broker id of each broker."""
    events: tuple[Event, ...]
    self_check: bool = False
    reader: bool = False
    """Whether a program follows the history, as the pipeline does."""

    @property
    def end_of_events(self) -> float:
        return max([event.ends_at for event in self.events] or [START_S])

    @property
    def calm_s(self) -> float:
        return CALM_WITH_READER_S if self.reader else CALM_S

    def with_one_event_less(self) -> Iterator["Plan"]:
        """Without the last one, the one before, and so on."""
        for number in reversed(range(len(self.events))):
            yield replace(self, events=self.events[:number] + self.events[number + 1 :])

    def with_one_broker_less(self) -> Iterator["Plan"]:
        """Without one that no event names, as long as two are left."""
        named = {event.values.get("broker") for event in self.events}
        for broker in reversed(self.brokers if len(self.brokers) > 2 else ()):
            if f"{broker[0]}/{broker[1]}" not in named:
                yield replace(self, brokers=tuple(one for one in self.brokers if one != broker))

    def lines(self) -> list[str]:
        groups: dict[str, list[int]] = {}
        for group, broker_id in self.brokers:
            groups.setdefault(group, []).append(broker_id)
        listed = ", ".join(f"{group} (ids {', '.join(map(str, ids))})" for group, ids in groups.items())
        fleet = f"{self.workers} workers and {len(self.brokers)} brokers: {listed}."
        reader = ["A reader follows the history."] if self.reader else []
        return [fleet, *reader, *map(str, self.events)]


SENTENCES: Final = {
    "kill-worker": "{worker} is killed, and started again {seconds:.1f} s later.",
    "stop-worker": "{worker} is asked to stop, and started again {seconds:.1f} s later.",
    "suspend-worker": "{worker} is suspended for {seconds:.1f} s.",
    "kill-all-workers": "all workers are killed, and started again {seconds:.1f} s later.",
    "cut-worker": "{worker} is cut off from the store for {seconds:.1f} s.",
    "reset-worker": "the connections of {worker} to the store are reset.",
    "cut-broker": "{broker} and {worker} are cut apart for {seconds:.1f} s.",
    "isolate-broker": "{broker} is cut off from all workers for {seconds:.1f} s.",
    "kill-broker": "{broker} is killed, and started again {seconds:.1f} s later.",
    "end-broker": "{broker} is killed for good.",
    "hang-broker": "{broker} hangs for {seconds:.1f} s, with its connection open.",
    "move-broker": "{broker} is killed, and started again at another address.",
    "unregister-broker": "{broker} unregisters, and registers again {seconds:.1f} s later.",
    "change-topics": "{broker} changes its topics.",
    "drop-connections": "the load balancer restarts: all connections of brokers end.",
    "restart-store": "the store is restarted with its data, and is away for {seconds:.1f} s.",
    "fail-over": "the store fails over, is away for {seconds:.1f} s, and has lost its last {lost:.1f} s of writes.",
    "empty-store": "the store loses all its data, and is away for {seconds:.1f} s.",
    "split-store": "the store is split for {seconds:.1f} s: {worker} stays with an old primary, whose writes are lost.",
    "slow-store": "the store answers {delay:.1f} s late for {seconds:.1f} s.",
    "miss-changes": "{worker} is cut off from the store for {seconds:.1f} s; meanwhile {broker} changes its topics, "
    "and so many key-values are put that the history is trimmed.",
    "reader-away": "the reader of the history is away for {seconds:.1f} s, while the history is trimmed.",
    "nearly-expire": "{broker} hangs for {seconds:.1f} s, about as long as its timeout; when it continues, the store "
    "answers {delay:.1f} s late.",
    "forget-scripts": "the store forgets its scripts.",
    "jump-store-clock": "the clock of the store jumps by {jump:.0f} s.",
    "jump-worker-clock": "the clock of {worker} jumps by {jump:.0f} s.",
    "put-kv": "an operator puts a key-value.",
    "delete-topic": "an operator deletes a topic of {broker}.",
    "register-topic": "an operator registers a topic on {broker}.",
}


class _Author:
    """Draws events from chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"{seed}/plan")
        chance = self.chance
        self.workers = chance.choice((2, 2, 3))
        groups = chance.choice((2, 3, 3, 4, 6))
        self.brokers = [(f"broker-{chr(97 + group)}", 0) for group in range(groups)]
        self.brokers += [(f"broker-{chr(97 + group)}", 1) for group in range(groups) if chance.random() < 0.3]

    def worker(self) -> str:
        return f"worker-{self.chance.randint(1, self.workers)}"

    def broker(self) -> str:
        group, broker_id = self.chance.choice(self.brokers)
        return f"{group}/{broker_id}"

    def some_seconds(self, least: float, most: float) -> float:
        return round(float(least * (most / least) ** self.chance.random()), 1)

    def events(self) -> tuple[Event, ...]:
        """Some close together, some far apart."""
        number = self.chance.choice((2, 3, 4, 5, 6, 8, 10))
        kinds = self.chance.choices(list(_DRAWN), [weight for weight, _ in _DRAWN.values()], k=number)
        at, events = START_S, []
        for kind in kinds:
            at += self.chance.choice((0.05, 0.3, 1.0, 3.0, 6.0)) * (0.5 + self.chance.random())
            events.append(Event(round(at, 2), kind, _DRAWN[kind][1](self)))
        return tuple(events)


_DRAWN: Final[dict[str, tuple[int, Callable[[_Author], dict[str, Any]]]]] = {
    "kill-worker": (8, lambda a: {"worker": a.worker(), "seconds": a.some_seconds(0.5, 15)}),
    "stop-worker": (4, lambda a: {"worker": a.worker(), "seconds": a.some_seconds(0.5, 6)}),
    "suspend-worker": (6, lambda a: {"worker": a.worker(), "seconds": a.some_seconds(0.3, 16)}),
    "kill-all-workers": (2, lambda a: {"seconds": a.some_seconds(1, 20)}),
    "cut-worker": (6, lambda a: {"worker": a.worker(), "seconds": a.some_seconds(0.3, 16)}),
    "reset-worker": (3, lambda a: {"worker": a.worker()}),
    "cut-broker": (4, lambda a: {"broker": a.broker(), "worker": a.worker(), "seconds": a.some_seconds(0.3, 15)}),
    "isolate-broker": (3, lambda a: {"broker": a.broker(), "seconds": a.some_seconds(0.3, 15)}),
    "kill-broker": (7, lambda a: {"broker": a.broker(), "seconds": a.some_seconds(0.1, 12)}),
    "end-broker": (3, lambda a: {"broker": a.broker()}),
    "hang-broker": (4, lambda a: {"broker": a.broker(), "seconds": a.some_seconds(1, 15)}),
    "move-broker": (3, lambda a: {"broker": a.broker(), "seconds": a.some_seconds(0.1, 3)}),
    "unregister-broker": (3, lambda a: {"broker": a.broker(), "seconds": a.some_seconds(0.1, 5)}),
    "change-topics": (10, lambda a: {"broker": a.broker()}),
    "drop-connections": (3, lambda _: {}),
    "restart-store": (4, lambda a: {"seconds": a.some_seconds(0.1, 12)}),
    "fail-over": (6, lambda a: {"seconds": a.some_seconds(0.1, 6), "lost": a.some_seconds(0.05, 4)}),
    "empty-store": (3, lambda a: {"seconds": a.some_seconds(0.1, 6)}),
    "split-store": (3, lambda a: {"worker": a.worker(), "seconds": a.some_seconds(0.3, 5)}),
    "slow-store": (3, lambda a: {"delay": a.chance.choice((0.1, 0.5)), "seconds": a.some_seconds(1, 8)}),
    "miss-changes": (4, lambda a: {"worker": a.worker(), "broker": a.broker(), "seconds": a.some_seconds(6, 10)}),
    "reader-away": (3, lambda a: {"seconds": a.some_seconds(6, 12)}),
    "nearly-expire": (4, lambda a: {"broker": a.broker(), "seconds": a.some_seconds(7.5, 10.5), "delay": 0.5}),
    "forget-scripts": (1, lambda _: {}),
    "jump-store-clock": (3, lambda a: {"jump": a.chance.choice((-3600.0, -600.0, -20.0, 20.0, 600.0, 3600.0))}),
    "jump-worker-clock": (2, lambda a: {"worker": a.worker(), "jump": a.chance.choice((-3600.0, 3600.0))}),
    "put-kv": (3, lambda _: {}),
    "delete-topic": (4, lambda a: {"broker": a.broker()}),
    "register-topic": (2, lambda a: {"broker": a.broker()}),
}


def draw_plan(seed: int) -> Plan:
    author = _Author(seed)
    events = author.events()
    chance = author.chance
    return Plan(
        seed,
        author.workers,
        tuple(author.brokers),
        events,
        self_check=chance.random() < 0.3,
        reader=chance.random() < 0.3 or any(event.kind == "reader-away" for event in events),
    )
