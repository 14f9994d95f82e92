"""A whole namespace at one version, as a value: what an export holds and an import brings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from routebook.model.broker import DataVersion
from routebook.model.topic import QueueData, TopicMapping


@dataclass(frozen=True, slots=True)
class InstanceSnapshot:
    """One seat. What a source does not tell is None or empty; the next registration of the broker brings it."""

    broker_id: int
    address: str
    cluster: str
    """Nearly always the group's. A group that registers under two clusters has two of these with one id."""
    ha_address: str = ""
    timeout_ms: int | None = None
    data_version: DataVersion | None = None
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    name: str
    cluster: str
    zone: str | None = None
    acting_master: bool = False
    members: tuple[InstanceSnapshot, ...] = ()
    queues: Mapping[str, QueueData] = field(default_factory=dict)
    """By topic."""
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)
    """By topic: those that this group hosts."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Where and when. `version` and `history` are None when another name server was the source."""

    source: str
    namespace: str | None = None
    history: str | None = None
    version: int | None = None
    ms: int | None = None
    """On the store's clock."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    taken: Taken
    groups: tuple[GroupSnapshot, ...] = ()
    key_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """Those changed at run time, secrets not among them."""
    left_out: tuple[str, ...] = ()
    """What is in the source and cannot be in a snapshot, in words."""
