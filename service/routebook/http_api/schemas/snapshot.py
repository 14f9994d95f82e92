"""A whole namespace as a document, and what its import did."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from routebook.http_api.schemas.registration import DataVersionGiven, MappingGiven
from routebook.http_api.schemas.table import INT32_MAX, INT64_MAX, Answer, Given, Version
from routebook.model.names import check_name
from routebook.model.snapshot import GroupSnapshot, MemberSnapshot, Snapshot, Taken
from routebook.model.topic import QueueData
from routebook.snapshots.importing import Imported
from routebook.snapshots.planning import Step

_INT32 = Annotated[int, Field(ge=-(2**31), le=INT32_MAX)]
"""Wider than what may be registered over HTTP: what a broker once brought shall come back."""

SNAPSHOT_EXAMPLE: dict[str, Any] = {
    "snapshot": 1,
    "taken": {"source": "routebook", "namespace": "default", "history": "5f0c9a1b", "version": 42, "ms": 1763475600000},
    "left_out": [],
    "settings": {"hold_percent": "40"},
    "key_values": {"ORDER_TOPIC_CONFIG": {"TopicA": "broker-a:8"}},
    "groups": [
        {
            "name": "broker-a",
            "cluster": "DefaultCluster",
            "zone": None,
            "acting_master": False,
            "members": [
                {
                    "id": 0,
                    "address": "127.0.0.11:10911",
                    "cluster": "DefaultCluster",
                    "ha_address": "127.0.0.11:10912",
                    "timeout_ms": 120000,
                    "data_version": {"state_version": 0, "timestamp": 1763475600000, "counter": 3},
                    "filters": [],
                }
            ],
            "topics": {"TopicA": {"read_queues": 8, "write_queues": 8, "perm": 6, "flags": 0}},
            "mappings": {},
        }
    ],
}


class TakenGiven(Given):
    """Where the snapshot is from. Told to people; an import does not look at it."""

    source: str = "unknown"
    namespace: str | None = None
    history: str | None = None
    version: int | None = None
    ms: int | None = None


class SnapshotQueues(Given):
    read_queues: _INT32 = 0
    write_queues: _INT32 = 0
    perm: _INT32 = 0
    flags: _INT32 = 0
    by_request: bool = Field(False, description="It came from register-topic: no broker brings it.")

    def as_queue_data(self) -> QueueData:
        return QueueData(self.read_queues, self.write_queues, self.perm, self.flags, self.by_request)


class SnapshotMember(Given):
    """One seat. What is null or empty stays as it is in the route table."""

    id: int = Field(ge=0, le=INT64_MAX)
    address: str
    cluster: str | None = Field(None, description="The group's, if null.")
    ha_address: str = ""
    timeout_ms: int | None = Field(None, ge=1, le=INT32_MAX)
    data_version: DataVersionGiven | None = None
    filters: list[str] = Field(default_factory=list)

    def as_member(self, cluster: str) -> MemberSnapshot:
        return MemberSnapshot(
            broker_id=self.id,
            address=self.address,
            cluster=self.cluster or cluster,
            ha_address=self.ha_address,
            timeout_ms=self.timeout_ms,
            data_version=self.data_version.as_data_version() if self.data_version else None,
            filters=tuple(check_name("filter", text) for text in self.filters),
        )


class SnapshotGroup(Given):
    """All brokers sharing a name, with their topics."""

    name: str
    cluster: str
    zone: str | None = None
    acting_master: bool = False
    members: list[SnapshotMember] = Field(default_factory=list)
    topics: dict[str, SnapshotQueues] = Field(default_factory=dict)
    mappings: dict[str, MappingGiven] = Field(default_factory=dict, description="Static topics, by topic name.")

    def as_group(self) -> GroupSnapshot:
        return GroupSnapshot(
            name=self.name,
            cluster=self.cluster,
            zone=check_name("zone", self.zone) if self.zone else None,
            acting_master=self.acting_master,
            members=tuple(member.as_member(self.cluster) for member in self.members),
            queues={topic: queues.as_queue_data() for topic, queues in self.topics.items()},
            mappings={topic: mapping.as_mapping(topic) for topic, mapping in self.mappings.items()},
        )


class SnapshotGiven(Given):
    """As `GET /v1/snapshot` answers it."""

    model_config = ConfigDict(json_schema_extra={"examples": [SNAPSHOT_EXAMPLE]})

    snapshot: Literal[1] = Field(description="The version of this form.")
    taken: TakenGiven = TakenGiven()
    left_out: list[str] = Field(default_factory=list, description="What the source has and a snapshot cannot hold.")
    settings: dict[str, str] = Field(default_factory=dict, description="Those changed at run time; no secrets.")
    key_values: dict[str, dict[str, str]] = Field(default_factory=dict)
    groups: list[SnapshotGroup] = Field(default_factory=list)

    def as_snapshot(self) -> Snapshot:
        return Snapshot(
            taken=Taken(**self.taken.model_dump()),
            groups=tuple(group.as_group() for group in self.groups),
            key_values=self.key_values,
            settings=self.settings,
        )


class StepShown(Answer):
    """One thing that an import is about."""

    kind: Literal["setting", "key-value", "group", "broker", "topic", "mapping"]
    name: str = Field(examples=["TopicA @ broker-a"])
    action: Literal["create", "replace", "keep"] = Field(
        description="keep: the route table says something else, and stays as it is; `?replace=true` replaces it."
    )
    fields: dict[str, list[Any]] = Field(
        description="What differs: as it is in the route table, and in the snapshot.", examples=[{"perm": [6, 4]}]
    )

    @classmethod
    def of(cls, step: Step) -> "StepShown":
        fields = {name: [_json(now), _json(then)] for name, (now, then) in step.fields.items()}
        return cls.model_validate({"kind": step.kind, "name": step.name, "action": step.action, "fields": fields})


class Counted(Answer):
    """How many things of one kind; `same` needs nothing."""

    create: int = Field(examples=[2])
    replace: int = Field(examples=[0])
    keep: int = Field(examples=[0])
    same: int = Field(examples=[5])


class ImportShown(Answer):
    """What an import did, or with `dry_run` would do."""

    dry_run: bool
    counts: dict[str, Counted] = Field(description="By kind.")
    steps: list[StepShown] = Field(
        description="Each thing that is not the same. Topics of a group that is new are counted, not listed."
    )
    left_out: list[str] = Field(description="What no verb can bring, with the reason.", examples=[[]])
    turned_down: list[str] = Field(
        description="Members whose seat another one holds with a higher state version.", examples=[[]]
    )
    version: Version

    @classmethod
    def of(cls, imported: Imported, *, dry_run: bool) -> "ImportShown":
        plan = imported.plan
        return cls(
            dry_run=dry_run,
            counts={kind: Counted.model_validate(counted) for kind, counted in plan.counts.items()},
            steps=[StepShown.of(step) for step in plan.steps],
            left_out=list(plan.left_out),
            turned_down=list(imported.turned_down),
            version=imported.version,
        )


def _json(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
