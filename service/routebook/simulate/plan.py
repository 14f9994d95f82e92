"""The plan of a simulation: the fleet at the start (groups, brokers and topics), and which trouble happens to which
group, and when. Both follow from the options and the seed alone, whatever the clock does later.


Invariant: a group is in one trouble at a time. The plan knows how long each trouble lasts and does not use the group
again until then. When a trouble takes longer in reality, the next one waits for it (`GroupState.trouble_lock`), so the
order stays the same.
"""

import heapq
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import AddressValueError, IPv4Address
from typing import Final, Literal

from routebook.errors import InvalidInputError
from routebook.model.broker import PERM_INHERIT, PERM_READ_WRITE, SYNC_MEMBER_TOPIC_PREFIX, QueueData
from routebook.model.names import check_address, check_name

DEFAULT_FIRST_ADDRESS: Final = "127.64.0.1:10911"
QUEUE_NUMBERS: Final = (1, 2, 4, 8, 16)
MAX_GROUPS_PER_TOPIC: Final = 8
PORTS_PER_HOST: Final = 8
"""A broker that moves uses the next of these ports of its host."""


@dataclass(frozen=True, slots=True)
class Layout:
    brokers: int = 10
    """Number of masters, and so of groups."""
    slaves: int = 0
    """Slaves of each group."""
    clusters: int = 1
    topics: int = 20
    """Topics besides those that every broker has."""
    prefix: str = "sim"
    first_address: str = DEFAULT_FIRST_ADDRESS
    """Address of the first broker. Each further broker uses the next host, with the same port."""

    def __post_init__(self) -> None:
        check_name("prefix", self.prefix)
        check_address("first address", self.first_address)
        host, _, port = self.first_address.rpartition(":")
        try:
            last = IPv4Address(host) + self.brokers * (1 + self.slaves)
        except AddressValueError as error:
            allowed = f"an IPv4 address followed by enough others for all brokers, such as {DEFAULT_FIRST_ADDRESS}"
            raise InvalidInputError("first address", self.first_address, allowed) from error
        del last
        if int(port) + PORTS_PER_HOST > 65535:
            raise InvalidInputError("first address", self.first_address, f"a port up to {65535 - PORTS_PER_HOST}")
        if not 1 <= self.clusters <= self.brokers:
            raise InvalidInputError("clusters", self.clusters, f"1 to {self.brokers}, the number of brokers")


@dataclass(frozen=True, slots=True)
class GroupLayout:
    name: str
    cluster: str
    hosts: tuple[str, ...]
    """The master's first. Broker ids can change, but each broker keeps its host."""


@dataclass(frozen=True, slots=True)
class TopicLayout:
    cluster: str
    groups: tuple[str, ...]
    queue: QueueData


def groups_of(layout: Layout) -> list[GroupLayout]:
    host, _, _ = layout.first_address.rpartition(":")
    first, per_group = IPv4Address(host), 1 + layout.slaves
    width = len(str(layout.brokers))
    return [
        GroupLayout(
            name=f"{layout.prefix}-broker-{number + 1:0{width}}",
            cluster=f"{layout.prefix}-cluster-{number % layout.clusters + 1}",
            hosts=tuple(str(first + number * per_group + rank) for rank in range(per_group)),
        )
        for number in range(layout.brokers)
    ]


def port_of(layout: Layout) -> int:
    return int(layout.first_address.rpartition(":")[2])


def topics_of(layout: Layout, groups: list[GroupLayout], seed: int) -> dict[str, TopicLayout]:
    rng = random.Random(f"{seed}/topics")  # noqa: S311 a simulation
    by_cluster = names_by_cluster(groups)
    clusters = sorted(by_cluster)
    width = len(str(layout.topics))
    found = {}
    for number in range(layout.topics):
        cluster = clusters[number % len(clusters)]
        name = f"{layout.prefix}-topic-{number + 1:0{width}}"
        found[name] = TopicLayout(cluster, random_groups(rng, by_cluster[cluster]), random_queue(rng))
    return found


def names_by_cluster(groups: list[GroupLayout]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for group in groups:
        found.setdefault(group.cluster, []).append(group.name)
    return found


def random_groups(rng: random.Random, names: list[str]) -> tuple[str, ...]:
    return tuple(sorted(rng.sample(names, rng.randint(1, min(MAX_GROUPS_PER_TOPIC, len(names))))))


def random_queue(rng: random.Random) -> QueueData:
    queues = rng.choice(QUEUE_NUMBERS)
    return QueueData(queues, queues, PERM_READ_WRITE, 0)


def system_topics(cluster: str, broker: str) -> Mapping[str, QueueData]:
    """The topics that every broker registers by itself, so a full registration never has only one topic."""
    inherited = PERM_READ_WRITE | PERM_INHERIT
    one = QueueData(1, 1, PERM_READ_WRITE, 0)
    return {
        "SELF_TEST_TOPIC": one,
        "TBW102": QueueData(8, 8, inherited, 0),
        "BenchmarkTest": QueueData(1024, 1024, PERM_READ_WRITE, 0),
        cluster: QueueData(16, 16, inherited, 0),
        broker: QueueData(1, 1, inherited, 0),
        "OFFSET_MOVED_EVENT": one,
        "SCHEDULE_TOPIC_XXXX": QueueData(18, 18, PERM_READ_WRITE, 0),
        f"{cluster}_REPLY_TOPIC": one,
        f"rmq_sys_REVIVE_LOG_{cluster}": QueueData(8, 8, PERM_READ_WRITE, 0),
        f"{SYNC_MEMBER_TOPIC_PREFIX}{broker}": QueueData(1, 1, PERM_INHERIT, 0),
        "RMQ_SYS_TRANS_HALF_TOPIC": one,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": one,
    }


Kind = Literal[
    "crash", "deploy", "switch", "silence", "permission", "flap", "topic-created", "topic-resized", "topic-deleted"
]

PAUSE_S: Final = 3.0
"""Pause between two troubles of one group, so that the first is over when the second begins."""
SILENT_AFTER_TIMEOUT_S: Final = (8.0, 15.0)
"""How long a broker stays silent after its timeout, since a name server checks every five seconds."""
NO_END: Final = float("inf")
_ANY_QUEUE: Final = QueueData()


@dataclass(frozen=True, slots=True)
class Churn:
    """The average interval of each kind of trouble, in seconds; 0 for never."""

    crash_every_s: float = 0
    deploy_every_s: float = 0
    switch_every_s: float = 0
    silence_every_s: float = 0
    permission_every_s: float = 0
    flap_every_s: float = 0
    topics_every_s: float = 0
    timeout_ms: int = 120_000
    """The timeout after which name servers remove a silent broker."""
    duration_s: float = 0
    """Length of the plan, in which all troubles end; 0 for no end."""


@dataclass(frozen=True, slots=True)
class Step:
    at_s: float
    kind: Kind
    groups: tuple[str, ...]
    cluster: str
    lasts_s: float = 0
    """Time until the broker returns, the permission is restored, or the slave takes over."""
    then_s: float = 0
    """For `switch`: time from then until the old master returns; 0 when it did not stop."""
    rank: int = 0
    """Which broker of the group, in the order of broker ids, so 0 is the current master; modulo their number."""
    moves: bool = False
    """For `deploy`: the broker returns at another address."""
    downs: tuple[tuple[float, float], ...] = ()
    """For `flap`: for each crash, the time down and the time up after it."""
    topic: str = ""
    queue: QueueData = _ANY_QUEUE

    @property
    def end_s(self) -> float:
        return self.at_s + self.lasts_s + self.then_s + sum(down + up for down, up in self.downs)


@dataclass
class _Planner:
    groups: list[GroupLayout]
    topics: dict[str, TopicLayout]
    churn: Churn
    seed: int
    prefix: str
    busy_until: dict[str, float] = field(default_factory=dict)
    created_topics: int = 0
    target_topics: int = 0

    def __post_init__(self) -> None:
        self.target_topics = len(self.topics)

    def steps(self) -> Iterator[Step]:
        churn = self.churn
        rates = {
            "crash": churn.crash_every_s,
            "deploy": churn.deploy_every_s,
            "switch": churn.switch_every_s,
            "silence": churn.silence_every_s,
            "permission": churn.permission_every_s,
            "flap": churn.flap_every_s,
            "topics": churn.topics_every_s,
        }
        # One random generator per kind, so that the rate of one kind does not change the choices of the others.
        rngs = {kind: random.Random(f"{self.seed}/{kind}") for kind in rates}  # noqa: S311 a simulation
        due = [(_pause(rngs[kind], every), kind) for kind, every in rates.items() if every]
        heapq.heapify(due)
        end = churn.duration_s or NO_END
        while due and due[0][0] < end:
            at_s, kind = heapq.heappop(due)
            heapq.heappush(due, (at_s + _pause(rngs[kind], rates[kind]), kind))
            step = self._topic_step(at_s, rngs[kind]) if kind == "topics" else self._step(at_s, kind, rngs[kind])
            if step is None or step.end_s + PAUSE_S > end:
                continue
            if step.kind != "topic-deleted":
                self.busy_until |= dict.fromkeys(step.groups, step.end_s + PAUSE_S)
            self._apply_to_topics(step)
            yield step

    def _free_groups(self, at_s: float) -> list[GroupLayout]:
        return [group for group in self.groups if self.busy_until.get(group.name, 0) <= at_s]

    def _step(self, at_s: float, kind: str, rng: random.Random) -> Step | None:
        """Returns None when no group is free for it."""
        free = [group for group in self._free_groups(at_s) if kind != "switch" or len(group.hosts) > 1]
        if not free:
            return None
        group = rng.choice(free)
        template = Step(at_s, "crash", (group.name,), group.cluster)
        rank = _rank(rng, len(group.hosts))
        match kind:
            case "crash":
                step = replace(template, rank=rank, lasts_s=rng.uniform(3, 12))
            case "deploy":
                step = replace(template, kind="deploy", rank=rank, lasts_s=rng.uniform(1, 5), moves=rng.random() < 0.3)
            case "switch":
                step = replace(template, kind="switch", rank=rng.randint(1, len(group.hosts) - 1))
                if rng.random() < 0.5:
                    step = replace(step, lasts_s=rng.uniform(2, 6), then_s=rng.uniform(3, 10))
            case "silence":
                lasts_s = self.churn.timeout_ms / 1000 + rng.uniform(*SILENT_AFTER_TIMEOUT_S)
                step = replace(template, kind="silence", rank=rank, lasts_s=lasts_s)
            case "permission":
                step = replace(template, kind="permission", lasts_s=rng.uniform(3, 10))
            case _:
                times = range(rng.randint(3, 5))
                downs = tuple((rng.uniform(0.2, 2), rng.uniform(1, 3)) for _ in times)
                step = replace(template, kind="flap", rank=rank, downs=downs)
        return step

    def _topic_step(self, at_s: float, rng: random.Random) -> Step | None:
        free = self._free_groups(at_s)
        # Keeps the number of topics roughly constant.
        create, delete = (30, 30) if len(self.topics) >= self.target_topics else (50, 10)
        kind = rng.choices(("topic-created", "topic-resized", "topic-deleted"), (create, 40, delete))[0]
        if kind == "topic-created" or not self.topics:
            if not free:
                return None
            by_cluster = names_by_cluster(free)
            cluster = rng.choice(sorted(by_cluster))
            topic = f"{self.prefix}-made-{self.created_topics + 1}"
            groups = random_groups(rng, by_cluster[cluster])
            return Step(at_s, "topic-created", groups, cluster, topic=topic, queue=random_queue(rng))
        topic = rng.choice(sorted(self.topics))
        found = self.topics[topic]
        if kind == "topic-deleted":
            return Step(at_s, "topic-deleted", found.groups, found.cluster, topic=topic)
        names = {group.name for group in free}
        groups = tuple(name for name in found.groups if name in names)
        if not groups:
            return None
        return Step(at_s, "topic-resized", groups, found.cluster, topic=topic, queue=random_queue(rng))

    def _apply_to_topics(self, step: Step) -> None:
        if step.kind == "topic-created":
            self.created_topics += 1
            self.topics[step.topic] = TopicLayout(step.cluster, step.groups, step.queue)
        elif step.kind == "topic-deleted":
            del self.topics[step.topic]


def plan(
    groups: list[GroupLayout], topics: dict[str, TopicLayout], churn: Churn, seed: int, prefix: str
) -> Iterator[Step]:
    """The steps in the order of time."""
    return _Planner(groups, dict(topics), churn, seed, prefix).steps()


def _pause(rng: random.Random, every_s: float) -> float:
    return every_s * rng.uniform(0.5, 1.5)


def _rank(rng: random.Random, brokers: int) -> int:
    """Prefers masters to slaves, because clients notice what happens to a master."""
    return 0 if brokers == 1 or rng.random() < 0.6 else rng.randint(1, brokers - 1)
