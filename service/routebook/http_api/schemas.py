"""Request and response bodies as pydantic models, which are the schemas in `/openapi.json`.

Registrations and snapshots have theirs in their own modules.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from routebook.model.broker import DataVersion, QueueData
from routebook.registry.dry_runs import DryRun
from routebook.registry.reading import BrokerView, ClusterView
from routebook.registry.status import ExpiryState, ServiceStatus, StoreHealth
from routebook.store.reads import Presence

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class RequestBody(BaseModel):
    """A request body. An unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ResponseBody(BaseModel):
    """A response body."""

    model_config = ConfigDict(frozen=True)


Version = Annotated[int, Field(description="Version of the table that contains this change.", examples=[42])]
NextCursor = Annotated[
    str | None, Field(description="Pass it as `cursor` to read the next page; null on the last page.", examples=[None])
]


class WriteResult(ResponseBody):
    """The change was made, or was there already. This worker has seen `version`."""

    version: Version


class PlannedChangeResult(ResponseBody):
    """One object that a request would change."""

    what: str = Field(examples=["topic TopicA on broker-a"])
    before: str = Field(examples=["perm 6"])
    after: str = Field(examples=["perm 4"])


class DryRunResult(ResponseBody):
    """What a request with `dry_run=true` would change, from the table of this worker. Nothing was changed."""

    dry_run: Literal[True] = True
    count: int = Field(description="Number of objects that would change.", examples=[1])
    changes: list[PlannedChangeResult] = Field(description="The first 200 of them.")
    version: int = Field(description="Version of the table that was examined.", examples=[42])

    @classmethod
    def of(cls, plan: DryRun) -> Self:
        changes = [PlannedChangeResult(what=one.what, before=one.before, after=one.after) for one in plan.changes]
        return cls(count=plan.count, changes=changes, version=plan.version)


class TopicWriteResult(ResponseBody):
    """Result of a change of topic entries (one entry: one topic on one broker group)."""

    count: int = Field(description="Number of topic entries it applied to.", examples=[2])
    version: Version


class Queues(ResponseBody):
    """One topic on one broker group."""

    read_queues: int = Field(examples=[8])
    write_queues: int = Field(examples=[8])
    perm: int = Field(description="Sum of 4 (read), 2 (write), 1 (inherit), 8 (priority).", examples=[6])
    flags: int = Field(examples=[0])

    @classmethod
    def of(cls, queue: QueueData) -> Self:
        return cls(read_queues=queue.read_queues, write_queues=queue.write_queues, perm=queue.perm, flags=queue.flags)


class Topic(ResponseBody):
    """A topic with its queues on each broker group."""

    topic: str = Field(examples=["TopicA"])
    queues: dict[str, Queues] = Field(description="By broker name.")

    @classmethod
    def of(cls, topic: str, queues: Mapping[str, QueueData]) -> Self:
        return cls(topic=topic, queues={name: Queues.of(queue) for name, queue in sorted(queues.items())})


class Topics(ResponseBody):
    topics: list[Topic]
    next_cursor: NextCursor


class DataVersionResult(ResponseBody):
    state_version: int
    timestamp: int
    counter: int

    @classmethod
    def of(cls, version: DataVersion) -> Self:
        return cls(state_version=version.state_version, timestamp=version.timestamp, counter=version.counter)


class InstanceResult(ResponseBody):
    """The instance in one seat of a broker group. What its registration contained is null when it is not known."""

    id: int = Field(description="0 is the master.", examples=[0])
    address: str = Field(examples=["127.0.0.11:10911"])
    ha_address: str | None = Field(examples=["127.0.0.11:10912"])
    timeout_ms: int | None = Field(examples=[30000])
    data_version: DataVersionResult | None
    filters: list[str]
    incarnation: str | None = Field(examples=["5f0c9a1be2d34c77"])
    role: Literal["master", "acting-master", "slave"] = Field(
        description="`acting-master`: the group has no master, and this seat answers for it."
    )
    health: Literal["ok", "late", "silent", "disconnected", "held", "unknown"] = Field(
        description="`late`: no heartbeat for more than half of its timeout; `silent`: for all of it; `disconnected`: "
        "its connection was lost and it is being dialled; `held`: its removal is held; `unknown`: the store cannot be "
        "reached."
    )
    last_heartbeat_ms: int | None = Field(description="Time on the store's clock.", examples=[1763475600000])
    heartbeat_age_ms: int | None = Field(description="Age of the last heartbeat now.", examples=[4000])
    expires_in_ms: int | None = Field(
        description="Until it may be removed, if no heartbeat comes and expiry is not paused.", examples=[116000]
    )
    up_since_ms: int | None = Field(
        description="When this incarnation registered; null if an older release recorded it.", examples=[1763470000000]
    )
    source: str | None = Field(description="Address that its connection came from.", examples=["127.0.0.1:40112"])
    worker: str | None = Field(
        description="A worker that holds a connection of it. Brokers registered over HTTP have none.",
        examples=["host.4711.5f0c9a"],
    )

    @classmethod
    def of(cls, view: BrokerView, broker_id: int, presences: Mapping[str, Presence]) -> Self:
        instance = view.instances.get(broker_id)
        presence = presences.get(instance.instance_name) if instance else None
        version = instance.data_version if instance else None
        return cls(
            id=broker_id,
            address=view.group.addresses[broker_id],
            ha_address=(instance.ha_address or None) if instance else None,
            timeout_ms=instance.timeout_ms if instance else None,
            data_version=DataVersionResult.of(version) if version else None,
            filters=list(instance.filters) if instance else [],
            incarnation=instance.incarnation if instance else None,
            role=view.group.role_of(broker_id),
            health=presence.health if presence else "unknown",
            last_heartbeat_ms=presence.heartbeat_ms if presence else None,
            heartbeat_age_ms=presence.heartbeat_age_ms if presence else None,
            expires_in_ms=presence.expires_in_ms if presence else None,
            up_since_ms=presence.since_ms if presence else None,
            source=(presence.source or None) if presence else None,
            worker=(presence.worker or None) if presence else None,
        )


class Broker(ResponseBody):
    """A broker group: all brokers that share a broker name."""

    name: str = Field(examples=["broker-a"])
    cluster: str = Field(description="Cluster of its first registration.", examples=["DefaultCluster"])
    zone: str | None
    acting_master: bool
    clusters: list[str] = Field(description="The clusters that list it.", examples=[["DefaultCluster"]])
    members: list[InstanceResult]
    topics: int = Field(description="Number of its topics.", examples=[2])
    writable_topics: int = Field(description="Number of its topics that may be written.", examples=[2])
    closed_topics: int = Field(
        description="Number of its topics that may neither be written nor read, which are for the broker's own use.",
        examples=[0],
    )

    @classmethod
    def of(cls, view: BrokerView, presences: Mapping[str, Presence]) -> Self:
        group = view.group
        return cls(
            name=group.name,
            cluster=group.cluster,
            zone=group.zone,
            acting_master=group.acting_master,
            clusters=sorted(view.clusters),
            members=[InstanceResult.of(view, broker_id, presences) for broker_id in sorted(group.addresses)],
            topics=view.topics,
            writable_topics=view.writable_topics,
            closed_topics=view.closed_topics,
        )


class Brokers(ResponseBody):
    brokers: list[Broker]
    next_cursor: NextCursor


class Cluster(ResponseBody):
    """The broker groups listed under a cluster. A group can be listed under several clusters."""

    name: str = Field(examples=["DefaultCluster"])
    brokers: list[str] = Field(examples=[["broker-a", "broker-b"]])
    members: int = Field(description="Number of occupied seats in those groups.", examples=[4])
    topics: int = Field(description="Number of topics on them.", examples=[12])

    @classmethod
    def of(cls, view: ClusterView) -> Self:
        return cls(name=view.name, brokers=list(view.brokers), members=view.instances, topics=view.topics)


class Clusters(ResponseBody):
    clusters: list[Cluster]
    next_cursor: NextCursor


class KvInput(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"value": "broker-a:8"}]})

    value: str


class KvValue(ResponseBody):
    namespace: str = Field(examples=["ORDER_TOPIC_CONFIG"])
    key: str = Field(examples=["TopicA"])
    value: str = Field(examples=["broker-a:8"])


class KvNamespaceResult(ResponseBody):
    namespace: str = Field(examples=["ORDER_TOPIC_CONFIG"])
    keys: int = Field(description="Number of its keys.", examples=[1])


class KvNamespaces(ResponseBody):
    namespaces: list[KvNamespaceResult] = Field(description="Sorted by name.")
    next_cursor: NextCursor


class KvTable(ResponseBody):
    namespace: str = Field(examples=["ORDER_TOPIC_CONFIG"])
    table: dict[str, str] = Field(examples=[{"TopicA": "broker-a:8"}])
    next_cursor: NextCursor


ROUTE_EXAMPLE: dict[str, Any] = {
    "brokerDatas": [
        {
            "brokerAddrs": {"0": "127.0.0.11:10911"},
            "brokerName": "broker-a",
            "cluster": "DefaultCluster",
            "enableActingMaster": False,
        }
    ],
    "filterServerTable": {},
    "queueDatas": [{"brokerName": "broker-a", "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}],
}


class WritePermissionInput(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"writable": False}]})

    writable: bool = Field(
        description="False removes the write bit from all its topics; true sets their permission to 6."
    )


class Setting(ResponseBody):
    key: str = Field(examples=["broker_timeout_ms"])
    value: str = Field(description="Secrets are masked.", examples=["120000"])
    origin: str = Field(
        description="Flag, variable, run time, file, RocketMQ's variable or default.", examples=["default"]
    )


class Settings(ResponseBody):
    settings: list[Setting]


class SettingInput(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"value": 60000}]})

    value: bool | int | float | str = Field(description="The value, or its text as in a settings file.")

    @property
    def text(self) -> str:
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)


class ChangeEntry(ResponseBody):
    """One entry of the history, or a refusal. Further fields depend on its kind."""

    model_config = ConfigDict(frozen=True, extra="allow")

    entry: str = Field(
        description="Id of the entry, `<ms>-<version>`. The field `id` is a broker id.", examples=["1763475600000-42"]
    )
    ms: int = Field(description="Time of the change on the store's clock.", examples=[1763475600000])
    version: int | None = Field(description="Null for a refusal.", examples=[42])
    kind: str = Field(description="A kind of change, or `refused`, or `failed`.", examples=["broker-registered"])


class MissingEntries(ResponseBody):
    """Versions that were requested but are no longer in the history."""

    from_version: int
    to_version: int


class Changes(ResponseBody):
    changes: list[ChangeEntry] = Field(description="Newest last, or newest first with `order=desc`.")
    next_cursor: str = Field(
        description="Continues after this page, with the same filters. It is set even when nothing more is there yet.",
        examples=["1763475600000-42~1763475600000-0"],
    )
    has_more: bool = Field(
        description="Whether more may be there now. Then a page can be empty, too.", examples=[False]
    )
    next_since: int = Field(description="Version after which the history continues, for `since`.", examples=[42])
    missing: MissingEntries | None = Field(description="Requested versions that are no longer kept.", examples=[None])


class ExpiryResult(ResponseBody):
    """Which worker removes silent brokers, and whether an operator has to decide because too many are due at once."""

    held: bool
    held_since_ms: int | None = Field(description="Time on the store's clock.", examples=[None])
    brokers: list[str] = Field(description="The silent brokers that are kept (the first thousand).", examples=[[]])
    due: int = Field(description="Instances due for removal in the scan that began the hold.", examples=[0])
    instances: int = Field(description="All instances at that scan.", examples=[0])
    leader: str | None = Field(description="The worker that scans for silent brokers.", examples=["host.4711.5f0c9a"])
    token: int | None = Field(description="Fencing token of its lease; it only rises.", examples=[1763475600000])
    last_scan_ms: int | None = Field(examples=[1763475605000])

    @classmethod
    def of(cls, state: ExpiryState) -> Self:
        return cls(
            held=state.held,
            held_since_ms=state.held_since_ms,
            brokers=list(state.brokers),
            due=state.due,
            instances=state.instances,
            leader=state.leader,
            token=state.token,
            last_scan_ms=state.last_scan_ms,
        )


class Leader(ResponseBody):
    worker: str
    token: int | None = Field(description="Fencing token of its lease; it only rises.", examples=[1763475600000])
    last_scan_ms: int | None


class Worker(ResponseBody):
    worker: str = Field(examples=["host.4711.5f0c9a"])
    alive: bool = Field(description="Its lease has not expired.")
    lease_ends_ms: int
    about: dict[str, Any] = Field(
        description="What the worker reports about itself with each renewal of its lease: host, pid, version, ports, "
        "`table`, and `figures`: its totals since its start, and how far its table is behind."
    )


class Counts(ResponseBody):
    clusters: int
    groups: int = Field(description="Broker groups, that is, broker names.")
    brokers: int = Field(description="Occupied seats in all groups.")
    topics: int


class Reader(ResponseBody):
    """A reader of the history that has durably consumed it up to `version`."""

    reader: str
    version: int
    seen_ms: int = Field(
        description="Time of its last report. After `reader_expiry_ms` without one, nothing is kept for it."
    )


class Readers(ResponseBody):
    readers: list[Reader] = Field(description="Sorted by name.")


class HistoryKept(ResponseBody):
    """Which part of the history the store keeps, and which bound requires that."""

    first_version: int = Field(description="Oldest version kept; one above the newest version when none is kept.")
    entries: int
    bytes: int = Field(description="Size, accurate to about one MiB.")
    bound: str = Field(
        description="The bound in force: `history_min_entries`, `reader`, `history_hard_limit` or `history_max_bytes`.",
        examples=["history_min_entries"],
    )
    keeps_from_version: int = Field(
        description="Older versions are removed by the next trimming, which runs once a minute."
    )
    held_by: str | None = Field(description="The slowest reader, when the bound is `reader`.", examples=[None])
    readers: list[Reader]

    @classmethod
    def of(cls, status: ServiceStatus) -> Self | None:
        state, bound = status.history_state, status.history_bound
        if state is None or bound is None:
            return None
        return cls(
            first_version=state.first,
            entries=state.entries,
            bytes=state.kept_bytes,
            bound=bound.reason,
            keeps_from_version=bound.below,
            held_by=bound.reader,
            readers=[
                Reader(reader=reader.name, version=reader.version, seen_ms=reader.seen_ms) for reader in state.readers
            ],
        )


class BaselineRequested(ResponseBody):
    wanted_since_ms: int = Field(description="Time on the store's clock.", examples=[1763475600000])


class SelfCheck(ResponseBody):
    """The periodic comparison of the store with this worker's table."""

    age_seconds: float | None = Field(description="Since the last complete one; null before the first.", examples=[12])
    differences: int = Field(description="Objects that differed, since the start of the worker.", examples=[0])
    last_difference: str | None = Field(description="What was written back last.", examples=[None])

    @classmethod
    def of(cls, health: StoreHealth) -> Self:
        return cls(
            age_seconds=health.check_age_s,
            differences=health.differences,
            last_difference=health.last_difference or None,
        )


class StatusResult(ResponseBody):
    """One worker's view of the service."""

    worker: str = Field(description="The worker that answers.", examples=["host.4711.5f0c9a"])
    namespace: str = Field(examples=["default"])
    version: int = Field(description="Version of the table it answers from.", examples=[42])
    history: str = Field(description="Name of the history. A store that lost data starts a new one.")
    digest: str = Field(description="Digest of the table, equal on all workers at the same version.")
    complete: bool = Field(description="Whether the whole table has been loaded.")
    stale_seconds: float = Field(description="Seconds since the last contact with the store; 0 while there is contact.")
    recovering: bool = Field(
        description="Whether the store lost data. Until it is restored, answers include the previous table."
    )
    leader: Leader | None = Field(description="Null when no worker leads or the store cannot be reached.")
    expiry_held: bool | None = Field(description="Null when the store cannot be reached.", examples=[False])
    workers: list[Worker]
    counts: Counts
    history_kept: HistoryKept | None = Field(description="Null when the store cannot be reached.")
    scripts: str = Field(description="Fingerprint of the Lua scripts.")
    warnings: list[str] = Field(
        description="Why answers may be old or wrong, the worst first: `incomplete`, `stale` (no contact with the "
        "store), `recovering`, `removals-held`. Empty when there is no reason.",
        examples=[[]],
    )
    store_alarms: dict[str, str] = Field(
        description="What endangers the data in the store: kind (eviction, memory, role, disk) and what to do.",
        examples=[{}],
    )
    self_check: SelfCheck
    identities: int = Field(description="Number of identities.", examples=[0])
    open_to_all: list[str] = Field(
        description="What everyone who can connect may do: `registration` (no identity with the role broker exists), "
        "`remoting-administration` (remoting_admin is open). Empty when the service listens on loopback only.",
        examples=[["registration"]],
    )

    @classmethod
    def of(cls, status: ServiceStatus) -> Self:
        return cls(
            worker=status.worker,
            namespace=status.namespace,
            version=status.version,
            history=status.history,
            digest=status.digest,
            complete=status.complete,
            stale_seconds=status.stale_seconds,
            recovering=status.recovering,
            leader=_leader_of(status.expiry),
            expiry_held=status.expiry.held if status.expiry else None,
            workers=[
                Worker(worker=each.worker, alive=each.alive, lease_ends_ms=each.lease_ends_ms, about=dict(each.about))
                for each in status.workers
            ],
            counts=Counts(clusters=status.clusters, groups=status.groups, brokers=status.brokers, topics=status.topics),
            history_kept=HistoryKept.of(status),
            scripts=status.scripts,
            warnings=list(status.warnings),
            store_alarms=dict(status.health.alarms),
            self_check=SelfCheck.of(status.health),
            identities=status.identities,
            open_to_all=list(status.open_to_all),
        )


def _leader_of(state: ExpiryState | None) -> Leader | None:
    if state is None or state.leader is None:
        return None
    return Leader(worker=state.leader, token=state.token, last_scan_ms=state.last_scan_ms)
