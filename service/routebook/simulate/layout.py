"""The fleet at the start: groups, brokers and topics, derived from the options and the seed alone."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Final

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
