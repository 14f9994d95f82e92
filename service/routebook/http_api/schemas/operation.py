"""State, history, settings, expiry."""

from typing import Any

from pydantic import ConfigDict, Field

from routebook.http_api.schemas.table import Answer, Given
from routebook.registry.status import ExpiryState, Status


class WritableGiven(Given):
    model_config = ConfigDict(json_schema_extra={"examples": [{"writable": False}]})

    writable: bool = Field(description="False takes the write bit from all its topics; true sets them to 6.")


class Setting(Answer):
    key: str = Field(examples=["broker_timeout_ms"])
    value: str = Field(description="Secrets masked.", examples=["120000"])
    origin: str = Field(
        description="flag, variable, run time, file, RocketMQ's variable or default.", examples=["default"]
    )


class Settings(Answer):
    settings: list[Setting]


class SettingGiven(Given):
    model_config = ConfigDict(json_schema_extra={"examples": [{"value": 60000}]})

    value: bool | int | float | str = Field(description="As its text in a file would be.")

    @property
    def text(self) -> str:
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)


class ChangeShown(Answer):
    """One entry of the history; further fields depend on its kind."""

    model_config = ConfigDict(frozen=True, extra="allow")

    entry: str = Field(
        description="Id of the entry, `<ms>-<version>`; `id` is a broker's.", examples=["1763475600000-42"]
    )
    ms: int = Field(description="When, on the store's clock.", examples=[1763475600000])
    version: int = Field(examples=[42])
    kind: str = Field(examples=["broker-registered"])


class Missing(Answer):
    """Trimmed away: the history begins later than asked for."""

    from_version: int
    to_version: int


class Changes(Answer):
    changes: list[ChangeShown] = Field(description="Newest last.")
    next_since: int = Field(description="Give it as `since` to read on.", examples=[42])
    missing: Missing | None = Field(description="What was asked for and is no longer kept.", examples=[None])


class Expiry(Answer):
    """Who takes silent brokers away, and whether so many are due at once that an operator has to decide."""

    held: bool
    held_since_ms: int | None = Field(description="On the store's clock.", examples=[None])
    brokers: list[str] = Field(description="Whose expiry is held (the first thousand).", examples=[[]])
    due: int = Field(description="Members due in the scan that was held.", examples=[0])
    instances: int = Field(description="All members at that scan.", examples=[0])
    leader: str | None = Field(description="The worker that scans.", examples=["host.4711.5f0c9a"])
    token: int | None = Field(description="Of its lease; only rises.", examples=[1763475600000])
    last_scan_ms: int | None = Field(examples=[1763475605000])

    @classmethod
    def of(cls, state: ExpiryState) -> "Expiry":
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


class Leader(Answer):
    worker: str
    token: int | None = Field(description="Only rises.", examples=[1763475600000])
    last_scan_ms: int | None


class Worker(Answer):
    worker: str = Field(examples=["host.4711.5f0c9a"])
    alive: bool = Field(description="Its lease runs.")
    lease_ends_ms: int
    about: dict[str, Any] = Field(description="What it says of itself: host, pid, version, ports.")


class Counts(Answer):
    clusters: int
    groups: int = Field(description="Broker groups: names.")
    brokers: int = Field(description="Seats taken in them.")
    topics: int


class Reader(Answer):
    """Somebody who reads the history, as far as he has it safely."""

    reader: str
    version: int
    seen_ms: int = Field(description="When he said so; after `reader_expiry_ms` he holds nothing back any more.")


class HistoryKept(Answer):
    """What of the history the store keeps, and why no less."""

    first_version: int = Field(description="The oldest that is there; one beyond the newest when none is.")
    entries: int
    bytes: int = Field(description="To about a MiB.")
    bound: str = Field(
        description="The bound in force: `history_min_entries`, `reader`, `history_hard_limit` or `history_max_bytes`.",
        examples=["history_min_entries"],
    )
    keeps_from_version: int = Field(description="What is older goes with the next trimming, once a minute.")
    held_by: str | None = Field(description="The slowest reader, if the bound is `reader`.", examples=[None])
    readers: list[Reader]

    @classmethod
    def of(cls, status: Status) -> "HistoryKept | None":
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
            readers=[Reader(reader=one.name, version=one.version, seen_ms=one.seen_ms) for one in state.readers],
        )


class BaselineWanted(Answer):
    wanted_since_ms: int = Field(description="On the store's clock.", examples=[1763475600000])


class StatusShown(Answer):
    """One worker's view of the service."""

    worker: str = Field(description="Who answers.", examples=["host.4711.5f0c9a"])
    namespace: str = Field(examples=["default"])
    version: int = Field(description="Of the table it answers from.", examples=[42])
    history: str = Field(description="A store that lost data starts a new one.")
    digest: str = Field(description="Equal on all workers with the same version.")
    complete: bool = Field(description="The whole table was loaded.")
    stale_seconds: float = Field(description="Age of the last contact with the store; 0 while in touch.")
    recovering: bool = Field(description="The store lost data; answers hold the old table too.")
    leader: Leader | None = Field(description="Null when nobody leads, or the store cannot be asked.")
    expiry_held: bool | None = Field(description="Null when the store cannot be asked.", examples=[False])
    workers: list[Worker]
    counts: Counts
    history_kept: HistoryKept | None = Field(description="Null when the store cannot be asked.")
    scripts: str = Field(description="Fingerprint of the Lua scripts.")

    @classmethod
    def of(cls, status: Status) -> "StatusShown":
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
                Worker(worker=one.worker, alive=one.alive, lease_ends_ms=one.lease_ends_ms, about=dict(one.about))
                for one in status.workers
            ],
            counts=Counts(clusters=status.clusters, groups=status.groups, brokers=status.brokers, topics=status.topics),
            history_kept=HistoryKept.of(status),
            scripts=status.scripts,
        )


def _leader_of(state: ExpiryState | None) -> Leader | None:
    if state is None or state.leader is None:
        return None
    return Leader(worker=state.leader, token=state.token, last_scan_ms=state.last_scan_ms)
