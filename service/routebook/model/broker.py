"""Brokers: the group that shares a name, its members, and what one of them says when it registers."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from routebook.model.data_version import DataVersion
from routebook.model.names import member_name
from routebook.model.topic import QueueData, TopicMapping

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
    def member(self) -> str:
        return member_name(self.cluster, self.address)


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
    def member(self) -> str:
        return member_name(self.cluster, self.address)


RegistrationStatus = Literal["unchanged", "changed", "turned-down", "refused"]


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """What the broker is told. Turned down (another member has the higher state version) is a success to the peer."""

    status: RegistrationStatus
    version: int
    incarnation: str = ""
    master_address: str = ""
    master_ha_address: str = ""
