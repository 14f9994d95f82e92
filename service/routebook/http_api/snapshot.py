"""Export and import of the whole namespace as one JSON document."""

from typing import Annotated, Any, Final, Literal, Self

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import ConfigDict, Field

from routebook.http_api import problems
from routebook.http_api.callers import AdminDep
from routebook.http_api.dependencies import WAIT_FOR_MIN_VERSION, RegistryDep
from routebook.http_api.openapi import ADMIN, BODY, READ, STORE, problem_responses
from routebook.http_api.registration import DataVersionInput, MappingInput
from routebook.http_api.schemas import INT32_MAX, INT64_MAX, RequestBody, ResponseBody, Version
from routebook.model.broker import QueueData
from routebook.model.names import check_name
from routebook.model.snapshot import GroupSnapshot, InstanceSnapshot, Snapshot, SnapshotOrigin
from routebook.snapshots import importing
from routebook.snapshots.document import encode_document, take_snapshot
from routebook.snapshots.importing import ImportOutcome
from routebook.snapshots.planning import Step

_INT32 = Annotated[int, Field(ge=-(2**31), le=INT32_MAX)]
"""Wider than the range for registrations over HTTP, so that every value a broker registered can be imported."""

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


class TakenInput(RequestBody):
    """Where the snapshot was taken. Information for people; an import ignores it."""

    source: str = "unknown"
    namespace: str | None = None
    history: str | None = None
    version: int | None = None
    ms: int | None = None


class SnapshotQueues(RequestBody):
    read_queues: _INT32 = 0
    write_queues: _INT32 = 0
    perm: _INT32 = 0
    flags: _INT32 = 0
    by_request: bool = Field(
        False, description="It was added by registering the topic; no broker's registration contains it."
    )

    def as_queue_data(self) -> QueueData:
        return QueueData(self.read_queues, self.write_queues, self.perm, self.flags, self.by_request)


class SnapshotInstance(RequestBody):
    """The instance in one seat. Fields that are null or empty leave the route table unchanged."""

    id: int = Field(ge=0, le=INT64_MAX)
    address: str
    cluster: str | None = Field(None, description="Null = the group's cluster.")
    ha_address: str = ""
    timeout_ms: int | None = Field(None, ge=1, le=INT32_MAX)
    data_version: DataVersionInput | None = None
    filters: list[str] = Field(default_factory=list)

    def as_instance(self, cluster: str) -> InstanceSnapshot:
        return InstanceSnapshot(
            broker_id=self.id,
            address=self.address,
            cluster=self.cluster or cluster,
            ha_address=self.ha_address,
            timeout_ms=self.timeout_ms,
            data_version=self.data_version.as_data_version() if self.data_version else None,
            filters=tuple(check_name("filter", text) for text in self.filters),
        )


class SnapshotGroup(RequestBody):
    """All brokers that share a broker name, with their topics."""

    name: str
    cluster: str
    zone: str | None = None
    acting_master: bool = False
    members: list[SnapshotInstance] = Field(default_factory=list)
    topics: dict[str, SnapshotQueues] = Field(default_factory=dict)
    mappings: dict[str, MappingInput] = Field(default_factory=dict, description="Static topics, by topic name.")

    def as_group(self) -> GroupSnapshot:
        return GroupSnapshot(
            name=self.name,
            cluster=self.cluster,
            zone=check_name("zone", self.zone) if self.zone else None,
            acting_master=self.acting_master,
            instances=tuple(member.as_instance(self.cluster) for member in self.members),
            queues={topic: queues.as_queue_data() for topic, queues in self.topics.items()},
            mappings={topic: mapping.as_mapping(topic) for topic, mapping in self.mappings.items()},
        )


class SnapshotInput(RequestBody):
    """The document that `GET /v1/snapshot` returns."""

    model_config = ConfigDict(json_schema_extra={"examples": [SNAPSHOT_EXAMPLE]})

    snapshot: Literal[1] = Field(description="Version of the document format.")
    taken: TakenInput = TakenInput()
    left_out: list[str] = Field(default_factory=list, description="What the source has but a snapshot cannot contain.")
    settings: dict[str, str] = Field(default_factory=dict, description="Settings changed at run time, without secrets.")
    key_values: dict[str, dict[str, str]] = Field(default_factory=dict)
    groups: list[SnapshotGroup] = Field(default_factory=list)

    def as_snapshot(self) -> Snapshot:
        return Snapshot(
            taken=SnapshotOrigin(**self.taken.model_dump()),
            groups=tuple(group.as_group() for group in self.groups),
            key_values=self.key_values,
            settings=self.settings,
        )


class ImportStep(ResponseBody):
    """One object that an import compares with the route table."""

    kind: Literal["setting", "key-value", "group", "broker", "topic", "mapping"]
    name: str = Field(examples=["TopicA @ broker-a"])
    action: Literal["create", "replace", "keep"] = Field(
        description="keep: the route table has a different value, which stays; `?replace=true` replaces it."
    )
    fields: dict[str, list[Any]] = Field(
        description="What differs: the value in the route table, and the value in the snapshot.",
        examples=[{"perm": [6, 4]}],
    )

    @classmethod
    def of(cls, step: Step) -> Self:
        fields = {name: [_json(now), _json(then)] for name, (now, then) in step.fields.items()}
        return cls.model_validate({"kind": step.kind, "name": step.name, "action": step.action, "fields": fields})


class ActionCounts(ResponseBody):
    """Number of objects of one kind by action. `same`: nothing to do."""

    create: int = Field(examples=[2])
    replace: int = Field(examples=[0])
    keep: int = Field(examples=[0])
    same: int = Field(examples=[5])


class ImportResult(ResponseBody):
    """What an import did, or would do with `dry_run`."""

    dry_run: bool
    counts: dict[str, ActionCounts] = Field(description="By kind.")
    steps: list[ImportStep] = Field(
        description="Every object that is not the same. Topics of new groups are counted but not listed."
    )
    left_out: list[str] = Field(description="What cannot be imported, with the reason.", examples=[[]])
    turned_down: list[str] = Field(
        description="Instances whose seat another instance holds with a higher state version.", examples=[[]]
    )
    version: Version

    @classmethod
    def of(cls, outcome: ImportOutcome, *, dry_run: bool) -> Self:
        plan = outcome.plan
        return cls(
            dry_run=dry_run,
            counts={kind: ActionCounts.model_validate(counts) for kind, counts in plan.counts.items()},
            steps=[ImportStep.of(step) for step in plan.steps],
            left_out=list(plan.left_out),
            turned_down=list(outcome.turned_down),
            version=outcome.version,
        )


def _json(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


router = APIRouter(tags=["operation"], prefix="/v1/snapshot")

_DOCUMENT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The document, with one group per line.",
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/SnapshotInput"},
                "example": SNAPSHOT_EXAMPLE,
            }
        },
    }
}


@router.get(
    "",
    summary="Export a snapshot",
    response_class=StreamingResponse,
    responses=_DOCUMENT | problem_responses(*READ, *ADMIN, problems.NOT_READY),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def export_snapshot(registry: RegistryDep, caller: AdminDep) -> StreamingResponse:
    """Everything in this worker's table at one version: brokers with their topics, key-values (including secrets, if
    they contain any), and settings changed at run time (without secrets).
    """
    del caller
    # A synchronous generator: it runs in a thread, so a large export does not delay lookups.
    return StreamingResponse(encode_document(take_snapshot(registry)), media_type="application/json")


@router.put("", summary="Import a snapshot", responses=problem_responses(*BODY, *ADMIN, *STORE, problems.NOT_READY))
async def import_snapshot(
    body: SnapshotInput,
    registry: RegistryDep,
    caller: AdminDep,
    dry_run: Annotated[bool, Query(description="Only report what would change.")] = False,
    replace: Annotated[
        bool, Query(description="Where the snapshot differs from the route table, write the snapshot's value.")
    ] = False,
) -> ImportResult:
    """Adds what the route table does not have. The whole document is checked before anything is written. Importing the
    same document again changes nothing, so after an interruption, repeat the import.

    Brokers are registered as if they had done it themselves, and expire when they do not exist. Nothing is deleted.
    Send a large snapshot in parts, as `routebook snapshot import` does.
    """
    outcome = await importing.import_snapshot(
        registry, body.as_snapshot(), caller, replace_known=replace, dry_run=dry_run
    )
    return ImportResult.of(outcome, dry_run=dry_run)
