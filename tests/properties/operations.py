"""Random operations on so few brokers, addresses and topics that they soon affect each other."""

from dataclasses import dataclass
from itertools import chain
from typing import Literal

from hypothesis import strategies as st

from routebook.model.broker import DataVersion, QueueData, Registration, TopicMapping

CLUSTERS = ("east", "west")
BROKERS = ("broker-a", "broker-b")
ADDRESSES = ("127.0.0.1:10911", "127.0.0.2:10911", "127.0.0.3:10911")
TOPICS = ("orders", "%RETRY%billing", 'quote"d/é')
KV_NAMESPACES = ("ORDER_TOPIC_CONFIG", "other")


@dataclass(frozen=True)
class Register:
    registration: Registration


@dataclass(frozen=True)
class Repeat:
    """Repeats an earlier registration exactly, whatever has happened since."""

    which: int


@dataclass(frozen=True)
class Heartbeat:
    cluster: str
    address: str


@dataclass(frozen=True)
class Expire:
    """These instances send nothing for longer than their timeout, and the leader scans."""

    instances: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class LoseConnections:
    """These instances lose their last connections, and their addresses do not answer."""

    instances: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Unregister:
    """A batch. `stale`: the batch names earlier incarnations of the addresses."""

    removals: tuple[tuple[str, str, str], ...]
    """Cluster, broker, address."""
    stale: bool = False


@dataclass(frozen=True)
class Depart:
    """Removes the instance of one of the seats that are taken at this point."""

    which: int
    how: Literal["expires", "loses its connection", "unregisters"]
    whole_group: bool = False
    """Whether the rest of the group is removed as well."""


@dataclass(frozen=True)
class RegisterTopic:
    topic: str
    queues: tuple[tuple[str, QueueData], ...]


@dataclass(frozen=True)
class DeleteTopic:
    topic: str
    cluster: str | None


@dataclass(frozen=True)
class SetWritePermission:
    broker: str
    writable: bool


@dataclass(frozen=True)
class PutKv:
    namespace: str
    key: str
    value: str


@dataclass(frozen=True)
class DeleteKv:
    namespace: str
    key: str


@dataclass(frozen=True)
class SetDeletionOption:
    """Changes deleteTopicWithBrokerRegistration at run time."""

    on: bool


@dataclass(frozen=True)
class CatchUp:
    """Lagging replicas catch up, with everything since the last time as one batch."""


Operation = (
    Register
    | Repeat
    | Heartbeat
    | Expire
    | LoseConnections
    | Unregister
    | Depart
    | RegisterTopic
    | DeleteTopic
    | SetWritePermission
    | PutKv
    | DeleteKv
    | SetDeletionOption
    | CatchUp
)

# The first of each is the most frequent, so that operations affect each other.
clusters = st.sampled_from([*CLUSTERS[:1] * 4, *CLUSTERS])
brokers = st.sampled_from([*BROKERS[:1] * 3, *BROKERS])
addresses = st.sampled_from([*ADDRESSES[:1] * 2, *ADDRESSES])
topics = st.sampled_from(TOPICS)
queues = st.builds(
    QueueData,
    read_queues=st.sampled_from([4, 8]),
    write_queues=st.just(8),
    perm=st.sampled_from([6, 6, 7, 4, 2]),
    flags=st.sampled_from([0, 0, 3]),
)
versions = st.sampled_from(
    [
        None,
        DataVersion(0, 1_700_000_000_000, 0),
        DataVersion(0, 1_700_000_000_000, 1),
        DataVersion(1, 1_700_000_000_000, 0),
    ]
)


@st.composite
def registrations(draw: st.DrawFn) -> Registration:
    broker = draw(brokers)
    topic_table = draw(st.dictionaries(topics, queues, min_size=draw(st.sampled_from([2, 2, 0]))))
    hosts = st.sampled_from([broker, broker, broker, *BROKERS])
    mapped = draw(st.just([]) | st.lists(st.tuples(topics, hosts, st.integers(1, 2)), max_size=2))
    keys = draw(st.sampled_from([None, None, None, frozenset({"other spelling", *list(topic_table)[1:]})]))
    return Registration(
        cluster=draw(clusters),
        broker=broker,
        broker_id=draw(st.sampled_from([0, 0, 0, 1, 1, 2])),
        address=draw(addresses),
        ha_address=draw(st.sampled_from(["", "127.0.0.1:10912"])),
        zone=draw(st.sampled_from([None, None, "az-1"])),
        timeout_ms=draw(st.sampled_from([None, 10_000])),
        acting_master=draw(st.sampled_from([None, False, True, True])),
        data_version=draw(versions),
        topics=topic_table,
        table_keys=keys,
        mappings={
            topic: TopicMapping(topic, host, total_queues=4, epoch=epoch, current_ids=((0, 0), (2, 1)))
            for topic, host, epoch in mapped
        },
        filters=draw(st.sampled_from([None, None, (), ("filter-1",), ("filter-1", "filter-2")])),
        full=draw(st.sampled_from([False, False, False, True])),
        replace_topics=draw(st.sampled_from([False, False, False, False, True])),
    )


kv_namespaces = st.sampled_from(KV_NAMESPACES)
kv_keys = st.sampled_from(["k", "orders"])
instances = st.tuples(clusters, addresses)
unregistrations = st.builds(
    Unregister,
    removals=st.lists(st.tuples(clusters, brokers, addresses), min_size=1, max_size=3).map(tuple),
    stale=st.sampled_from([False, False, True]),
)
registers = registrations().map(Register)
repeats = st.builds(Repeat, st.integers(0, 5))
removals = st.builds(
    Depart, st.integers(0, 3), st.sampled_from(["expires", "loses its connection", "unregisters"]), st.booleans()
)
rare: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Heartbeat, clusters, addresses),
    st.lists(instances, min_size=1, max_size=3, unique=True).map(lambda found: Expire(tuple(found))),
    st.lists(instances, min_size=1, max_size=3, unique=True).map(lambda found: LoseConnections(tuple(found))),
    unregistrations,
    st.builds(PutKv, kv_namespaces, kv_keys, st.sampled_from(["", "v"])),
    st.builds(DeleteKv, kv_namespaces, kv_keys),
)
on_topics: st.SearchStrategy[Operation] = st.one_of(
    st.builds(
        RegisterTopic,
        topics,
        st.dictionaries(st.sampled_from([*BROKERS, "unknown"]), queues, min_size=1, max_size=3).map(
            lambda found: tuple(found.items())
        ),
    ),
    st.builds(DeleteTopic, topics, st.none() | clusters),
    st.builds(SetWritePermission, st.sampled_from([*BROKERS, *BROKERS, "unknown"]), st.booleans()),
    st.booleans().map(SetDeletionOption),
)
operations: st.SearchStrategy[Operation] = st.one_of(
    registers, registers, registers, repeats, repeats, removals, on_topics, on_topics, rare, st.just(CatchUp())
)
histories: st.SearchStrategy[list[Operation]] = st.lists(
    st.lists(operations, min_size=4, max_size=10), min_size=1, max_size=5
).map(lambda parts: list(chain.from_iterable(parts)))
"""Built from parts, because Hypothesis seldom draws a long list, and can drop a whole part to shrink a history."""
