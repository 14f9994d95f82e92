"""Brokers: the group that shares a name, its instances, the queues of its topics, what a registration contains, and the
route of a topic.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Literal, NamedTuple, TypeVar

from msgspec import Struct, structs

from routebook.model.names import join_instance_name

MASTER_ID: Final = 0
DEFAULT_TIMEOUT_MS: Final = 120_000

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
PERM_PRIORITY: Final = 8
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

FLAG_UNIT: Final = 1
FLAG_UNIT_SUBSCRIPTION: Final = 2

ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""The only key-value namespace that the name server itself reads."""

SYNC_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Brokers read the true addresses of their group through the route of this topic, so it is never rewritten."""


# -- topics

_Item = TypeVar("_Item")


def parts_of(items: Iterable[_Item], length: int) -> Iterator[tuple[_Item, ...]]:
    """Cuts a large table into parts. Each is worked off in one step of the event loop, or sent with one script."""
    remaining = iter(items)
    while part := tuple(islice(remaining, length)):
        yield part


class QueueData(Struct, frozen=True, gc=False):
    """Queue numbers, permission and flags of one topic on one broker group.

    With `gc=False`, Python's search for garbage passes over a dictionary that has only such values. A table has
    millions of them, and each search would stop lookups for tens of milliseconds. The same holds for mappings.
    """

    read_queues: int = 16
    write_queues: int = 16
    perm: int = PERM_READ_WRITE
    flags: int = 0
    by_request: bool = False
    """Created by register-topic and not by a broker: after a loss of data, no broker registers it again."""

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    @property
    def is_closed(self) -> bool:
        return not self.perm & PERM_READ_WRITE

    def without_write(self) -> "QueueData":
        return structs.replace(self, perm=self.perm & ~PERM_WRITE)

    def pack(self) -> str:
        """The form kept in the store. The permission comes first, because it is what scripts change."""
        mark = " t" if self.by_request else ""
        return f"{self.perm} {self.read_queues} {self.write_queues} {self.flags}{mark}"

    @classmethod
    def unpack(cls, packed: str) -> "QueueData":
        perm, read_queues, write_queues, flags, *mark = packed.split(" ")
        return cls(int(read_queues), int(write_queues), int(perm), int(flags), bool(mark))


class TopicMapping(Struct, frozen=True, gc=False):
    """Static topic: which logical queue is which physical queue of this broker. Stored and returned unchanged."""

    topic: str
    bname: str
    total_queues: int = 0
    epoch: int = 0
    dirty: bool = False
    scope: str = "__global__"
    current_ids: tuple[tuple[int, int], ...] = ()


# -- groups and instances


class Seat(NamedTuple):
    """One broker id of a group."""

    cluster: str
    broker: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """All brokers that share a name."""

    name: str
    cluster: str
    zone: str | None = None
    acting_master: bool = False
    addresses: Mapping[int, str] = field(default_factory=dict)
    """By broker id."""
    revision: int = 0
    """Version of the last change of the group: seats, flags, queues or mappings."""

    def role_of(self, broker_id: int) -> Literal["master", "acting-master", "slave"]:
        """Without a master, the smallest id acts as master, if the group's brokers allow it."""
        if broker_id == MASTER_ID:
            return "master"
        is_acting = self.acting_master and broker_id == min(self.addresses)
        return "acting-master" if is_acting else "slave"


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The version of a broker's topic table. Any difference, older or newer, counts as a change."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def pack(self) -> str:
        """The form kept in the store."""
        return f"{self.state_version} {self.timestamp} {self.counter}"

    @classmethod
    def unpack(cls, packed: str) -> "DataVersion | None":
        """Empty when the broker sent no version: then every registration counts as a change."""
        if not packed:
            return None
        state_version, timestamp, counter = packed.split(" ")
        return cls(int(state_version), int(timestamp), int(counter))


@dataclass(frozen=True, slots=True)
class Instance:
    """One cluster and address that has registered. The same address in two clusters is two instances."""

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


# -- registrations


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One broker with (some of) its topics."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    ha_address: str = ""
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None
    """None means an old (4.x) broker, which is not the same as False."""
    data_version: DataVersion | None = None
    """Without one, every registration counts as a change."""
    topics: Mapping[str, QueueData] = field(default_factory=dict)
    """By the name in the topic's configuration, under which it is looked up."""
    table_keys: frozenset[str] | None = None
    """The keys of the table that contained the topics; None means the same names. The single-topic guard and
    `deleteTopicWithBrokerRegistration` use these keys.
    """
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)
    filters: tuple[str, ...] | None = None
    """None keeps the stored list, an empty one removes it."""
    full: bool = False
    """The table is complete even if it has only one topic (HTTP). On the remoting port, one topic is an increment."""
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
    """What is answered to the broker. Turned down (the seat belongs to an instance with a higher state version) is a
    success for the peer.
    """

    status: RegistrationStatus
    version: int
    incarnation: str = ""
    master_address: str = ""
    master_ha_address: str = ""


@dataclass(frozen=True, slots=True)
class MinBrokerChange:
    """A group has another smallest broker id, of which the receivers are notified (905).

    Either the address that left is given, or the replication address of the broker that joined.
    """

    broker: str
    min_id: int
    min_address: str
    receivers: tuple[str, ...]
    offline_address: str | None = None
    ha_address: str | None = None


def min_broker_joined(broker: str, seats: Mapping[int, str], ha_address: str) -> MinBrokerChange:
    """A broker registered with the smallest id. All others are notified; if there are none, the broker itself."""
    min_id = min(seats)
    receivers = tuple(address for id_, address in seats.items() if id_ != min_id or len(seats) == 1)
    return MinBrokerChange(broker, min_id, seats[min_id], receivers, ha_address=ha_address)


def min_broker_left(broker: str, seats: Mapping[int, str], offline_address: str) -> MinBrokerChange:
    """The broker with the smallest id was removed. All remaining ones are notified, including the new smallest."""
    min_id = min(seats)
    return MinBrokerChange(broker, min_id, seats[min_id], tuple(seats.values()), offline_address=offline_address)


# -- routes


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The answer to a lookup before it is encoded. Sorted by broker name, so that equal routes are equal bytes."""

    queues: Mapping[str, QueueData]
    """By broker name."""
    groups: tuple[BrokerGroup, ...]
    """As clients see them: an acting master has id 0."""
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By address."""
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)
    """By host broker name."""
    order_conf: str | None = None
