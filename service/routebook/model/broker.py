"""The version a broker gives its topic table.

A group's smallest id became another one: what its members are told (905), and which of them.

Brokers: the group that shares a name, its members, and what one of them says when it registers.

The answer to "where does topic T live?", as a value before it becomes bytes.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from routebook.model.names import join_instance_name
from routebook.model.topic import QueueData, TopicMapping


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Equal only when all three numbers are; a *different* version, older or newer, counts as changed."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def pack(self) -> str:
        """The form kept in the store."""
        return f"{self.state_version} {self.timestamp} {self.counter}"

    @classmethod
    def unpack(cls, packed: str) -> "DataVersion | None":
        """The empty text means that the broker named no version: every registration then counts as changed."""
        if not packed:
            return None
        state_version, timestamp, counter = packed.split(" ")
        return cls(int(state_version), int(timestamp), int(counter))


@dataclass(frozen=True, slots=True)
class MinBrokerChange:
    """One of the two addresses at the end is given: who left, or where the newcomer is replicated from."""

    broker: str
    min_id: int
    min_address: str
    receivers: tuple[str, ...]
    offline_address: str | None = None
    ha_address: str | None = None


def after_joining(broker: str, seats: Mapping[int, str], ha_address: str) -> MinBrokerChange:
    """A member registered with an id below all others: they are told, and it is not, unless it is alone."""
    min_id = min(seats)
    receivers = tuple(address for id_, address in seats.items() if id_ != min_id or len(seats) == 1)
    return MinBrokerChange(broker, min_id, seats[min_id], receivers, ha_address=ha_address)


def after_leaving(broker: str, seats: Mapping[int, str], offline_address: str) -> MinBrokerChange:
    """The member with the smallest id is gone: all that are left are told, the new smallest too."""
    min_id = min(seats)
    return MinBrokerChange(broker, min_id, seats[min_id], tuple(seats.values()), offline_address=offline_address)


class Seat(NamedTuple):
    """One broker id of a group."""

    cluster: str
    broker: str
    broker_id: int


MASTER_ID: Final = 0
DEFAULT_TIMEOUT_MS: Final = 120_000


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """All brokers sharing a name. `revision` is the version of its last change: seats, flags, queues, mappings."""

    name: str
    cluster: str
    zone: str | None = None
    acting_master: bool = False
    addresses: Mapping[int, str] = field(default_factory=dict)
    revision: int = 0

    def address_to_talk_to(self) -> str | None:
        """Id 0, else a random member: what every RocketMQ client does that wants some address of a group."""
        if not self.addresses:
            return None
        return self.addresses.get(MASTER_ID) or random.choice(list(self.addresses.values()))  # noqa: S311 - spreads load


@dataclass(frozen=True, slots=True)
class Instance:
    """One live entry: (cluster, address). The same address under two clusters is two instances."""

    cluster: str
    address: str
    broker: str
    broker_id: int
    incarnation: str
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    ha_address: str = ""
    data_version: DataVersion | None = None
    filters: tuple[str, ...] = ()

    @property
    def instance_name(self) -> str:
        return join_instance_name(self.cluster, self.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One broker announces itself with (some of) its topics.

    `topics` are keyed by the topic config's own name, the route key. `table_keys` are the keys of the table they came
    in, which is what `deleteTopicWithBrokerRegistration` and the single-topic guard look at; None means the same names.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    ha_address: str = ""
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None
    """None is an old (4.x) broker; it differs from False."""
    data_version: DataVersion | None = None
    """None counts as changed every time."""
    topics: Mapping[str, QueueData] = field(default_factory=dict)
    table_keys: frozenset[str] | None = None
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)
    filters: tuple[str, ...] | None = None
    """None leaves the stored list alone, empty removes it."""
    full: bool = False
    """A complete table even when it holds one topic (HTTP); from the wire one topic is an increment."""
    replace_topics: bool = False
    """Topics that this registration does not name are removed."""

    @property
    def instance_name(self) -> str:
        return join_instance_name(self.cluster, self.address)

    @property
    def seat(self) -> Seat:
        return Seat(self.cluster, self.broker, self.broker_id)


RegistrationStatus = Literal["unchanged", "changed", "turned-down", "refused"]


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """What the broker is told. Turned down (another member has the higher state version) is a success to the peer."""

    status: RegistrationStatus
    version: int
    incarnation: str = ""
    master_address: str = ""
    master_ha_address: str = ""


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """All maps and lists are in the order of broker names, so that equal routes are equal bytes."""

    queues: Mapping[str, QueueData]
    """By broker name."""
    groups: tuple[BrokerGroup, ...]
    """As a client shall see them: an acting master stands under id 0."""
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By address."""
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)
    """By host broker name."""
    order_conf: str | None = None
