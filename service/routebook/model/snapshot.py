"""A whole namespace at one version, as a value: what an export contains and an import adds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from routebook.model.broker import DataVersion, QueueData, TopicMapping


@dataclass(frozen=True, slots=True)
class InstanceSnapshot:
    """The instance in one seat. Fields that the source does not report are None or empty until the broker registers."""

    broker_id: int
    address: str
    cluster: str
    """Nearly always the group's. A group that registers under two clusters has two of these with the same broker id."""
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
    instances: tuple[InstanceSnapshot, ...] = ()
    queues: Mapping[str, QueueData] = field(default_factory=dict)
    """By topic."""
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)
    """By topic, for the static topics that this group hosts."""


@dataclass(frozen=True, slots=True)
class SnapshotOrigin:
    """Where and when the snapshot was taken. `version` and `history` are None for a snapshot of another name server."""

    source: str
    namespace: str | None = None
    history: str | None = None
    version: int | None = None
    ms: int | None = None
    """On the store's clock."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    taken: SnapshotOrigin
    groups: tuple[GroupSnapshot, ...] = ()
    key_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings changed at run time, without secrets."""
    left_out: tuple[str, ...] = ()
    """What the source has but a snapshot cannot contain, as texts."""
