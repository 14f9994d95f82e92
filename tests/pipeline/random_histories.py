"""Random histories: entries that a service could have appended, and a few that it never would.

A history is one namespace with many clusters. Holes, forks, pauses and baselines affect the whole namespace; everything
else happens to one cluster. A simple model of the route table decides which entries are possible; the oracle does not
use it.
"""

import random
from dataclasses import dataclass, field

from routebook_pipeline.history import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Window
from routebook_pipeline.kinds import Kind
from tests.pipeline.scenario import Item, Row, Scenario, item, removed_item

START_MS = 1_790_000_000_000
TOPICS = [f"topic-{n}" for n in range(5)]
REMOVED_BY = ("expired", "connection-lost", "unregistered", "operator", "turned-down")
REASONS = ("utf8", "json", "field:kind", "newer", "kind")


@dataclass
class GroupState:
    cluster: str
    broker: str
    acting: bool = False
    zone: str | None = None
    seats: dict[int, str] = field(default_factory=dict)
    queues: dict[str, Item] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.cluster}/{self.broker}"

    @property
    def number(self) -> int:
        return int(self.broker.rpartition("-")[2])


@dataclass(frozen=True)
class FaultRates:
    """The probability, per step, of each event that affects the whole namespace, and of impossible entries."""

    hole: float = 0.0
    fork: float = 0.0
    unreadable: float = 0.0
    late: float = 0.0
    paused: float = 0.0005
    baseline: float = 0.0005
    impossible: float = 0.02


FEW_FAULTS = FaultRates()
MANY_FAULTS = FaultRates(
    hole=0.001, fork=0.0004, unreadable=0.003, late=0.002, paused=0.001, baseline=0.0015, impossible=0.05
)


@dataclass(frozen=True)
class RandomHistory:
    seed: int
    changes: list[Row]
    pulses: list[Row]


class Fleet:
    """Steps through time and records what happens as a scenario."""

    def __init__(self, seed: int, clusters: int, fault_rates: FaultRates) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.fault_rates = fault_rates
        self.scenario = Scenario(ns=f"random-{seed}", ms=START_MS + self.rng.randrange(DAY_MS))
        self.clusters = [self._cluster(f"cluster-{n}") for n in range(clusters)]
        self._batch_from = 0
        self._now = self.scenario.ms

    def _cluster(self, name: str) -> list[GroupState]:
        number = self.rng.choice((1, 1, 2, 2, 3, 5))
        return [GroupState(name, f"{name}-broker-{n}", acting=self.rng.random() < 0.4) for n in range(number)]

    def run(self, steps: int) -> RandomHistory:
        groups = self.rng.choice(self.clusters)
        for _ in range(steps):
            if self.rng.random() < 0.15:
                groups = self.rng.choice(self.clusters)
                self._wait()
            self._wait_briefly()
            self._namespace_event()
            if self.rng.random() < self.fault_rates.impossible:
                self._impossible(self.rng.choice(groups))
            else:
                self._cluster_event(groups)
            if self.rng.random() < 0.05:
                self._end_batch()
        self._end_batch()
        return RandomHistory(self.seed, self.scenario.changes, self.scenario.pulses)

    # Time

    def _wait(self) -> None:
        longest = self.rng.choices((MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, 3 * DAY_MS), (60, 30, 9, 1))[0]
        self._now += self.rng.randrange(longest)
        self.scenario.ms = max(self.scenario.ms, self._now)

    def _wait_briefly(self) -> None:
        self._now += self.rng.choice((0, 0, 0, 1, 1, self.rng.randrange(SECOND_MS), self.rng.randrange(40 * SECOND_MS)))
        self.scenario.ms = max(self.scenario.ms, self._now)

    def _end_batch(self) -> None:
        """A batch has one time, the store's clock at its end. If the clock steps back after that, later entries are
        late, although their versions go on rising.
        """
        noted = self._now + self.rng.choice((0, 0, 1, 30))
        if self.rng.random() < self.fault_rates.late * 20:
            noted = self.scenario.ms + self.rng.randrange(1, 5 * MINUTE_MS)
        else:
            self._now = max(self._now, noted)
            self.scenario.ms = max(self.scenario.ms, self._now)
        for row in self.scenario.changes[self._batch_from :]:
            row["ingested_ms"] = noted
        self._batch_from = len(self.scenario.changes)

    # Events in one cluster

    def _cluster_event(self, groups: list[GroupState]) -> None:
        group = self.rng.choice(groups)
        event = self.rng.choices(
            (
                self._register,
                self._remove,
                self._put_topic,
                self._delete_topic,
                self._set_permission,
                self._describe_group,
                self._flap,
                self._switch_master,
                self._report_gaps,
                self._unrelated_entry,
                self._put_many,
            ),
            (30, 18, 12, 5, 7, 3, 8, 6, 14, 3, 1),
        )[0]
        event(group)
        if self.rng.random() < 0.01:
            for other in groups:
                for broker_id in list(other.seats):
                    self._remove_seat(other, broker_id, self.rng.choice(("expired", "connection-lost", "operator")))
                    self._wait_briefly()

    def _items(self, group: GroupState, most: int = 3) -> list[Item]:
        chosen = self.rng.sample(TOPICS, self.rng.randrange(most + 1))
        return [self._item(topic) for topic in chosen]

    def _item(self, topic: str) -> Item:
        sizes = (1, 4, 8, 16)
        return item(
            topic,
            self.rng.choice(sizes),
            self.rng.choice((0, *sizes)),
            self.rng.choice((6, 6, 6, 7, 4, 2)),
            self.rng.choice((0, 0, 1)),
        )

    def _register(self, group: GroupState) -> None:
        self._register_seat(group, self.rng.choice((0, 0, 0, 1, 1, 2)), self.rng.randrange(5))

    def _register_seat(self, group: GroupState, broker_id: int, host: int) -> None:
        addr = f"127.0.{group.number}.{host}:10911"
        for former in [other for other, held_by in group.seats.items() if held_by == addr and other != broker_id]:
            del group.seats[former]
            self.scenario.removed("moved", f"{group.name}/{former}", addr, last_heartbeat_ms=self._now)
        known = group.seats.get(broker_id) == addr
        if broker_id in group.seats and not known:
            former_addr = group.seats[broker_id]
            self.scenario.removed("replaced", f"{group.name}/{broker_id}", former_addr, last_heartbeat_ms=self._now)
        group.seats[broker_id] = addr
        items = self._items(group) if broker_id == 0 or self.rng.random() < 0.2 else []
        if self.rng.random() < 0.1:
            group.zone = self.rng.choice((None, "zone-a", "zone-b"))
        for one in items:
            group.queues[one["topic"]] = one
        self.scenario.registered(
            *items,
            seat=f"{group.name}/{broker_id}",
            addr=addr,
            first=not known,
            acting=group.acting,
            zone=group.zone,
            timeout_ms=self.rng.choice((10_000, 30_000, 120_000)),
            kind=Kind.BROKER_CHANGED if known else Kind.BROKER_REGISTERED,
        )

    def _remove(self, group: GroupState) -> None:
        if group.seats:
            self._remove_seat(group, self.rng.choice(list(group.seats)), self.rng.choice(REMOVED_BY))

    def _remove_seat(self, group: GroupState, broker_id: int, cause: str) -> None:
        addr = group.seats.pop(broker_id)
        silent_since = max(0, self.scenario.ms - self.rng.choice((0, 5, 12_000, 30_000, 125_000, 135_000)))
        self.scenario.removed(
            cause,
            f"{group.name}/{broker_id}",
            addr,
            group_removed=not group.seats,
            timeout_ms=self.rng.choice((10_000, 30_000, 120_000)),
            last_heartbeat_ms=silent_since,
            lost_ms=self.rng.randrange(silent_since, self.scenario.ms + 1) if cause == "connection-lost" else None,
        )
        if not group.seats:
            group.queues.clear()
        elif group.acting and 0 not in group.seats and any(one["perm"] & 2 for one in group.queues.values()):
            self.scenario.write_permission("clear-write", group.name, cause="master-lost", touched=len(group.queues))

    def _put_topic(self, group: GroupState) -> None:
        if group.seats:
            one = self._item(self.rng.choice(TOPICS))
            group.queues[one["topic"]] = one
            self.scenario.queues(one, group=group.name)

    def _put_many(self, group: GroupState) -> None:
        if group.seats:
            many = [self._item(f"many-{n}") for n in range(self.rng.choice((9, 19, 20, 30)))]
            group.queues.update({each["topic"]: each for each in many})
            self.scenario.queues(*many, group=group.name)

    def _delete_topic(self, group: GroupState) -> None:
        if group.queues:
            topic = self.rng.choice(list(group.queues))
            del group.queues[topic]
            if self.rng.random() < 0.3:
                cause, others = "registration", [self._item(name) for name in TOPICS[:1] if name != topic]
            else:
                cause, others = "delete-topic", []
            for other in others:
                group.queues[other["topic"]] = other
            self.scenario.queues(removed_item(topic), *others, group=group.name, cause=cause)

    def _set_permission(self, group: GroupState) -> None:
        if group.queues:
            self.scenario.write_permission(self.rng.choice(("set", "clear-write", "clear-write")), group.name)

    def _describe_group(self, group: GroupState) -> None:
        group.acting, group.zone = self.rng.random() < 0.5, self.rng.choice((None, "zone-a"))
        self.scenario.entry(
            Kind.GROUP_CHANGED,
            cluster=group.cluster,
            broker=group.broker,
            zone=group.zone,
            acting=group.acting,
            group_removed=None if group.seats else True,
        )
        if not group.seats:
            group.queues.clear()

    def _flap(self, group: GroupState) -> None:
        for _ in range(self.rng.choice((1, 1, 3))):
            if group.seats:
                broker_id = self.rng.choice(list(group.seats))
                host = int(group.seats[broker_id].split(":")[0].split(".")[-1])
                self._remove_seat(group, broker_id, self.rng.choice(REMOVED_BY))
                self._wait_briefly()
                self._register_seat(group, broker_id, host)
                self._wait_briefly()

    def _switch_master(self, group: GroupState) -> None:
        """To another address and, sometimes, back."""
        first, second = self.rng.sample(range(5), 2)
        for host in (first, second, first)[: self.rng.choice((2, 3))]:
            if self.rng.random() < 0.3 and 0 in group.seats:
                self._remove_seat(group, 0, "connection-lost")
                self._wait_briefly()
            self._register_seat(group, 0, host)
            self._wait_briefly()

    def _report_gaps(self, group: GroupState) -> None:
        seat = f"{group.name}/{self.rng.choice((0, 0, 1))}"
        for _ in range(self.rng.choice((1, 2, 5))):
            usual = self.rng.choice((30, 60, 66, 66))
            histogram = {
                min(127, max(0, usual + self.rng.randrange(-3, 4))): self.rng.randrange(1, 90) for _ in range(3)
            }
            if self.rng.random() < 0.3:
                histogram[self.rng.choice((0, 71, 72, 73, 80, 127))] = self.rng.choice((1, 1, 2, 40))
            top = max(histogram)
            longest = int(100 * 2 ** ((top - self.rng.random()) / 8)) if top < 127 else 9_000_000
            to_ms = self.scenario.ms - self.rng.choice((0, 0, 1, 500, 30_000))
            self.scenario.heartbeat_gaps(histogram, seat, to_ms=to_ms, max_ms=longest, at=self.scenario.ms)

    def _unrelated_entry(self, group: GroupState) -> None:
        kind = self.rng.choice(
            (Kind.KV_PUT, Kind.KV_DELETED, Kind.SETTINGS_CHANGED, Kind.EXPIRY_HELD, Kind.EXPIRY_RELEASED)
        )
        self.scenario.entry(kind)

    def _impossible(self, group: GroupState) -> None:
        """Entries that no service writes and that every question must tolerate: duplicates, removals of absent things,
        baselines that never begin or end.
        """
        seat = f"{group.name}/{self.rng.randrange(3)}"
        addr = f"127.0.{group.number}.{self.rng.randrange(5)}:10911"
        self.rng.choice(
            (
                lambda: self.scenario.registered(seat=seat, addr=addr),
                lambda: self.scenario.registered(seat=seat, addr=addr, kind=Kind.BROKER_CHANGED),
                lambda: self.scenario.registered(*self._items(group), seat=seat, addr=addr, kind=Kind.BASELINE_SEAT),
                lambda: self.scenario.removed("expired", seat, addr, last_heartbeat_ms=self.scenario.ms),
                lambda: self.scenario.removed("unregistered", seat, addr, group_removed=True),
                lambda: self.scenario.queues(removed_item(self.rng.choice(TOPICS)), group=group.name),
                lambda: self.scenario.queues(self._item(self.rng.choice(TOPICS)), group=group.name),
                lambda: self.scenario.write_permission("set", group.name),
            )
        )()
        if self.rng.random() < 0.03:
            self.scenario.entry(self.rng.choice((Kind.BASELINE_BEGIN, Kind.BASELINE_END)))

    # Events in the whole namespace

    def _namespace_event(self) -> None:
        chances = self.fault_rates
        if self.rng.random() < chances.hole:
            self._lose_entries()
        if self.rng.random() < chances.fork:
            self._fork()
        if self.rng.random() < chances.unreadable:
            self.scenario.unreadable(self.rng.choice(REASONS))
        if self.rng.random() < chances.paused:
            start = self.scenario.ms - self.rng.randrange(10 * MINUTE_MS)
            self.scenario.entry(
                Kind.EXPIRY_PAUSED, from_ms=start, to_ms=self.rng.randrange(start, self.scenario.ms + 1)
            )
        if self.rng.random() < chances.baseline:
            self._baseline()

    def _lose_entries(self) -> None:
        """Entries that were trimmed before they were read."""
        kept, first = len(self.scenario.changes), self.scenario.version
        for _ in range(self.rng.randrange(1, 30)):
            self._wait_briefly()
            self._cluster_event(self.rng.choice(self.clusters))
        lost = self.scenario.version - first
        del self.scenario.changes[kept:]
        self._batch_from = min(self._batch_from, kept)
        self.scenario.version = first
        if lost:
            self.scenario.hole(lost)

    def _fork(self) -> None:
        """The store lost its last changes or everything, and its versions begin again at a lower number."""
        if self.rng.random() < 0.3:
            self.clusters = [
                [GroupState(group.cluster, group.broker, acting=group.acting) for group in groups]
                for groups in self.clusters
            ]
        self.scenario.fork(self.rng.randrange(1, max(2, self.scenario.version)))

    def _baseline(self) -> None:
        """A baseline of the route table, which has lost a part of what the history contains. Other events go on
        meanwhile.
        """
        self.scenario.entry(Kind.BASELINE_BEGIN)
        for groups in self.clusters:
            for group in groups:
                if self.rng.random() < 0.05:
                    group.seats.pop(self.rng.randrange(3), None)
                    group.queues.pop(self.rng.choice(TOPICS), None)
                for broker_id, addr in group.seats.items():
                    self.scenario.registered(
                        seat=f"{group.name}/{broker_id}",
                        addr=addr,
                        acting=group.acting,
                        zone=group.zone,
                        kind=Kind.BASELINE_SEAT,
                    )
                if group.queues:
                    self.scenario.entry(
                        Kind.BASELINE_QUEUES, *group.queues.values(), cluster=group.cluster, broker=group.broker
                    )
            if self.rng.random() < 0.05:
                self._wait_briefly()
                self._cluster_event(self.rng.choice(self.clusters))
        if self.rng.random() < 0.8:
            self.scenario.entry(Kind.BASELINE_END)


def random_history(seed: int, *, clusters: int, steps: int, fault_rates: FaultRates) -> RandomHistory:
    return Fleet(seed, clusters, fault_rates).run(steps)


def random_window(rng: random.Random, changes: list[Row]) -> Window:
    """Long and short windows, that begin and end at entries or between them, or lie before or after all entries."""
    first, last = changes[0]["ms"], changes[-1]["ms"]
    at, other = sorted((rng.choice(changes)["ms"], rng.choice(changes)["ms"]))
    between = rng.randrange(first, last + 1)
    return rng.choices(
        (
            Window(at, other + 1),
            Window(at, max(at + 1, other)),
            Window(min(at, between), max(at, between) + 1),
            Window(at, at + 1),
            Window(at - 1, at),
            Window(first - DAY_MS, first),
            Window(last + 1, last + 2 * DAY_MS),
            Window(first - HOUR_MS, last + HOUR_MS),
        ),
        (30, 20, 30, 4, 4, 2, 5, 5),
    )[0]
