"""What happens to whom, and when: a list that follows from options and seed alone, whatever the clock does later.

Invariant: a group is in one trouble at a time. The plan knows how long each lasts and leaves the group alone until
then; should the real one last longer, the next waits for it (`SimulatedGroup.trouble`), so the order holds.
"""

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from routebook.model.topic import QueueData
from routebook.simulate.layout import GroupLayout, TopicLayout, names_by_cluster, some_groups, some_queue

Kind = Literal[
    "crash", "deploy", "switch", "silence", "permission", "flap", "topic-created", "topic-resized", "topic-deleted"
]

PAUSE_S: Final = 3.0
"""Between two troubles of one group, so that the first is over when the second begins."""
SILENT_AFTER_TIMEOUT_S: Final = (8.0, 15.0)
"""How long beyond its timeout a broker stays silent: a name server looks every five seconds."""
NO_END: Final = float("inf")
_ANY_QUEUE: Final = QueueData()


@dataclass(frozen=True, slots=True)
class Churn:
    """How often something happens, in seconds on average; 0: never."""

    crash_every_s: float = 0
    deploy_every_s: float = 0
    switch_every_s: float = 0
    silence_every_s: float = 0
    permission_every_s: float = 0
    flap_every_s: float = 0
    topics_every_s: float = 0
    timeout_ms: int = 120_000
    """After which a silent broker is taken for dead."""
    duration_s: float = 0
    """Everything is over by then; 0: there is no end."""


@dataclass(frozen=True, slots=True)
class Step:
    at_s: float
    kind: Kind
    groups: tuple[str, ...]
    cluster: str
    lasts_s: float = 0
    """Until the broker is back, the permission is given back, the slave has taken over."""
    then_s: float = 0
    """switch: until the old master is back, after that. 0: it was never away."""
    rank: int = 0
    """Which member by its place, the current master being 0; taken modulo their number."""
    moves: bool = False
    """deploy: it returns under another address."""
    downs: tuple[tuple[float, float], ...] = ()
    """flap: how long down, how long up again, each time."""
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
    made: int = 0
    wanted_topics: int = 0

    def __post_init__(self) -> None:
        self.wanted_topics = len(self.topics)

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
        # One source of chance for each kind: another rate of one leaves the choices of the others.
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
            self._note(step)
            yield step

    def _calm(self, at_s: float) -> list[GroupLayout]:
        return [group for group in self.groups if self.busy_until.get(group.name, 0) <= at_s]

    def _step(self, at_s: float, kind: str, rng: random.Random) -> Step | None:
        """None: there is nobody to whom it could happen."""
        calm = [group for group in self._calm(at_s) if kind != "switch" or len(group.hosts) > 1]
        if not calm:
            return None
        group = rng.choice(calm)
        at = Step(at_s, "crash", (group.name,), group.cluster)
        rank = _rank(rng, len(group.hosts))
        match kind:
            case "crash":
                step = replace(at, rank=rank, lasts_s=rng.uniform(3, 12))
            case "deploy":
                step = replace(at, kind="deploy", rank=rank, lasts_s=rng.uniform(1, 5), moves=rng.random() < 0.3)
            case "switch":
                step = replace(at, kind="switch", rank=rng.randint(1, len(group.hosts) - 1))
                if rng.random() < 0.5:
                    step = replace(step, lasts_s=rng.uniform(2, 6), then_s=rng.uniform(3, 10))
            case "silence":
                lasts_s = self.churn.timeout_ms / 1000 + rng.uniform(*SILENT_AFTER_TIMEOUT_S)
                step = replace(at, kind="silence", rank=rank, lasts_s=lasts_s)
            case "permission":
                step = replace(at, kind="permission", lasts_s=rng.uniform(3, 10))
            case _:
                times = range(rng.randint(3, 5))
                downs = tuple((rng.uniform(0.2, 2), rng.uniform(1, 3)) for _ in times)
                step = replace(at, kind="flap", rank=rank, downs=downs)
        return step

    def _topic_step(self, at_s: float, rng: random.Random) -> Step | None:
        calm = self._calm(at_s)
        # Their number stays about what it was.
        create, delete = (30, 30) if len(self.topics) >= self.wanted_topics else (50, 10)
        kind = rng.choices(("topic-created", "topic-resized", "topic-deleted"), (create, 40, delete))[0]
        if kind == "topic-created" or not self.topics:
            if not calm:
                return None
            by_cluster = names_by_cluster(calm)
            cluster = rng.choice(sorted(by_cluster))
            topic = f"{self.prefix}-made-{self.made + 1}"
            groups = some_groups(rng, by_cluster[cluster])
            return Step(at_s, "topic-created", groups, cluster, topic=topic, queue=some_queue(rng))
        topic = rng.choice(sorted(self.topics))
        found = self.topics[topic]
        if kind == "topic-deleted":
            return Step(at_s, "topic-deleted", found.groups, found.cluster, topic=topic)
        names = {group.name for group in calm}
        groups = tuple(name for name in found.groups if name in names)
        if not groups:
            return None
        return Step(at_s, "topic-resized", groups, found.cluster, topic=topic, queue=some_queue(rng))

    def _note(self, step: Step) -> None:
        if step.kind == "topic-created":
            self.made += 1
            self.topics[step.topic] = TopicLayout(step.cluster, step.groups, step.queue)
        elif step.kind == "topic-deleted":
            del self.topics[step.topic]


def plan(
    groups: list[GroupLayout], topics: dict[str, TopicLayout], churn: Churn, seed: int, prefix: str
) -> Iterator[Step]:
    """In the order of time."""
    return _Planner(groups, dict(topics), churn, seed, prefix).steps()


def _pause(rng: random.Random, every_s: float) -> float:
    return every_s * rng.uniform(0.5, 1.5)


def _rank(rng: random.Random, members: int) -> int:
    """Masters more often than slaves: what happens to them is seen."""
    return 0 if members == 1 or rng.random() < 0.6 else rng.randint(1, members - 1)
