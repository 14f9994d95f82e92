"""Status, history, settings, expiry."""

from typing import Any, Self

from pydantic import ConfigDict, Field

from routebook.http_api.schemas.table import RequestBody, ResponseBody
from routebook.registry.status import ExpiryState, ServiceStatus


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
    """One entry of the history. Further fields depend on its kind."""

    model_config = ConfigDict(frozen=True, extra="allow")

    entry: str = Field(
        description="Id of the entry, `<ms>-<version>`. The field `id` is a broker id.", examples=["1763475600000-42"]
    )
    ms: int = Field(description="Time of the change on the store's clock.", examples=[1763475600000])
    version: int = Field(examples=[42])
    kind: str = Field(examples=["broker-registered"])


class MissingEntries(ResponseBody):
    """Versions that were requested but are no longer in the history."""

    from_version: int
    to_version: int


class Changes(ResponseBody):
    changes: list[ChangeEntry] = Field(description="Newest last.")
    next_since: int = Field(description="Pass it as `since` to read the next page.", examples=[42])
    missing: MissingEntries | None = Field(description="Requested versions that are no longer kept.", examples=[None])


class ExpiryResult(ResponseBody):
    """Which worker removes silent brokers, and whether so many are due at once that an operator has to decide."""

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
    about: dict[str, Any] = Field(description="What the worker reports about itself: host, pid, version, ports.")


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
        )


def _leader_of(state: ExpiryState | None) -> Leader | None:
    if state is None or state.leader is None:
        return None
    return Leader(worker=state.leader, token=state.token, last_scan_ms=state.last_scan_ms)
