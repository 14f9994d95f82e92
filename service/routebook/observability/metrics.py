"""The metrics of a worker. Callers report events in the product's words; names and labels are defined only here.

Each worker has one `Metrics` with its own registry, so that two workers in one process (tests) do not share numbers.
The figures at the top are counted elsewhere and read when the metrics are requested.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from routebook import __version__
from routebook.errors import (
    ForbiddenError,
    LimitError,
    NotFoundError,
    NotReadyError,
    NotSeenYetError,
    RefusedError,
    RoutebookError,
    StoreError,
)


@dataclass(frozen=True, slots=True)
class PortFigures:
    """Counted by the remoting port itself, because a metric's own counter would cost each lookup a lock.

    All but `waiting` and `slow_ms` are totals since the start.
    """

    found: int
    not_found: int
    not_ready: int
    waiting: Mapping[str, int]
    slow_ms: Mapping[str, int]
    refused: int
    violations: Mapping[str, int]
    cut: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """How current a worker's table is."""

    version: int
    digest: str
    stale_seconds: float
    complete: bool
    recovering: bool
    lag_changes: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class Activity:
    """Totals of this worker since its start, for the console, and its open connections."""

    lookups: int
    registrations: int
    heartbeats: int
    refused: int
    remoting_connections: int
    http_connections: int


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """State of the history at the leader's last check."""

    entries: int = 0
    bytes: int = 0
    used_ratio: float = 0.0
    readers: int = 0
    reader_lag_changes: int = 0


Reason = Literal["store", "not_ready", "refused", "forbidden", "not_found", "limit", "invalid", "failed"]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)

# The first class that fits wins.
_BY_ERROR: Final[tuple[tuple[type[RoutebookError], Reason], ...]] = (
    (StoreError, "store"),
    (NotReadyError, "not_ready"),
    (NotSeenYetError, "not_ready"),
    (RefusedError, "refused"),
    (ForbiddenError, "forbidden"),
    (NotFoundError, "not_found"),
    (LimitError, "limit"),
    (RoutebookError, "invalid"),
)


def reason_of(error: Exception) -> Reason:
    """Why a request was answered with an error. `failed`: an unexpected error."""
    return next((reason for error_class, reason in _BY_ERROR if isinstance(error, error_class)), "failed")


Port = Literal["http", "remoting"]
PORTS: tuple[Port, ...] = ("http", "remoting")
LookupResult = Literal["found", "not_found", "not_ready"]
RegistrationKind = Literal["unchanged", "changed", "refused", "turned_down"]

_REGISTRATIONS: Final[dict[tuple[str, str], RegistrationKind]] = {
    ("touch_broker", "UNCHANGED"): "unchanged",
    ("register_broker", "DONE"): "changed",
    ("register_broker", "UNCHANGED"): "unchanged",
    ("register_broker", "REFUSED"): "refused",
    ("register_broker", "LIMITED"): "refused",
    ("register_broker", "TURNED_DOWN"): "turned_down",
}
"""Result of a registration, by the script that ran and the status of its reply."""

LossOutcome = Literal[
    "elsewhere",
    "returned",
    "alive",
    "removed_at_once",
    "removed_refused",
    "removed_silent",
    "removed_not_dialled",
    "held",
    "not_dialled",
    "mass_disconnect",
    "undecided",
]
"""Result for a broker that lost its last connection to a worker. After `alive`, `held`, `not_dialled`,
`mass_disconnect` and `undecided` the broker's deadline decides.
"""

SelfCheckPart = Literal["group", "key-values", "settings", "identities", "table"]
"""What a self-check wrote back to the store. `table`: the store had something otherwise, and was read again."""

StoreAlarm = Literal["eviction", "memory", "role", "disk"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# A call takes 0.1 ms on a socket and up to 20 ms for the largest registration. The rest is for outages.
_STORE_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 2.0)
_REQUEST_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 10.0)
# A remoting lookup takes 3 microseconds, a chunk of a hundred some 200; one over HTTP 100.
_LOOKUP_SECONDS = (0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.005, 0.02, 0.1)
_DELAY_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

_CONNECTION_REFUSALS: Final = ("full", "spared", "address", "descriptors", "tls_unavailable")
_DIGEST_LETTERS: Final = 12
"""48 bits of the digest: a sample is a float, which holds that many bits exactly."""


def process_exposition() -> str:
    """Metrics of a process without a `Metrics`: the supervisor."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()


class Metrics:
    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it so
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._before: list[Callable[[], None]] = []
        self.http_sample_due = False
        self._build_counters()
        self._build_connections()
        self._build_table()
        self._build_feed()
        self._build_store_checks()
        self._build_leader()
        self._build_port()
        self._build_sessions()
        self._build_history()
        self._build_process()
        self._gauge("build_info", "Always 1; the version as a label.", ("version",)).labels(__version__).set(1)

    def exposition(self) -> bytes:
        """Prometheus text, with values measured now."""
        for callback in self._before:
            callback()
        return generate_latest(self.registry)

    def before_exposition(self, callback: Callable[[], None]) -> None:
        """For gauges that copy a value held elsewhere: `callback` sets them just before each answer."""
        self._before.append(callback)

    def activity(self) -> Activity:
        for callback in self._before:
            callback()
        return Activity(
            lookups=sum(_value(counter) for counter in self._lookups.values()),
            registrations=sum(_value(self._registrations.labels(kind)) for kind in get_args(RegistrationKind)),
            heartbeats=_value(self._heartbeats),
            refused=sum(_value(counter) for counter in self._requests_refused.values()),
            remoting_connections=_value(self._connections["remoting"]),
            http_connections=_value(self._connections["http"]),
        )

    # Ports

    def lookup(self, port: Port, result: LookupResult) -> None:
        self._lookups[port, result].inc()

    def lookup_time(self, port: Port, seconds: float) -> None:
        """Duration of a sampled lookup; `probes.Pace` decides when the next sample is due."""
        self._lookup_seconds[port].observe(seconds)
        if port == "http":
            self.http_sample_due = False

    def sample_http(self) -> None:
        self.http_sample_due = True

    def loop_delay(self, seconds: float) -> None:
        self._loop_delay.observe(seconds)

    def http_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is the pattern, never the path: labels must stay few."""
        self._http_requests.labels(method, route, str(status)).inc()
        self._http_seconds.labels(route).observe(seconds)

    def remoting_request(self, request: str, seconds: float) -> None:
        """`request` is a name of the protocol, never the lookup."""
        self._remoting_seconds.labels(request).observe(seconds)

    def request_refused(self, port: Port, reason: Reason) -> None:
        self._requests_refused[port, reason].inc()

    def watcher_added(self) -> None:
        self._watchers.inc()

    def watcher_removed(self) -> None:
        self._watchers.dec()

    def connections(self, port: Port, count: int) -> None:
        self._connections[port].set(count)

    def connection_refused(self, port: Port, reason: str) -> None:
        """`reason` is one of `_CONNECTION_REFUSALS`."""
        self._refused.labels(port, reason).inc()

    def tls_handshake_failed(self, port: Port) -> None:
        self._failed_handshakes.labels(port).inc()

    def remoting_port(self, figures: PortFigures) -> None:
        for queue, length in figures.waiting.items():
            self._waiting.labels(queue).set(length)
            self._slow_ms.labels(queue).set(figures.slow_ms[queue] / 1000)
        self._advance(self._overloaded, "overloaded", figures.refused)
        totals: dict[LookupResult, int] = {
            "found": figures.found,
            "not_found": figures.not_found,
            "not_ready": figures.not_ready,
        }
        for result, total in totals.items():
            self._advance(self._lookups["remoting", result], f"lookups {result}", total)
        for counter, counts in ((self._violations, figures.violations), (self._cut, figures.cut)):
            for reason, total in counts.items():
                self._advance(counter.labels(reason), f"{counter} {reason}", total)

    # Replica

    def open_access(self, to: Mapping[str, bool]) -> None:
        for what, is_open in to.items():
            self._open_access.labels(what).set(is_open)

    def table(self, *, brokers: int, topics: int, clusters: int) -> None:
        self._brokers.set(brokers)
        self._topics.set(topics)
        self._clusters.set(clusters)

    def replica(self, figures: ReplicaFigures) -> None:
        self._version.set(figures.version)
        self._digest.set(int(figures.digest[-_DIGEST_LETTERS:], 16))
        self._stale_seconds.set(figures.stale_seconds)
        self._complete.set(figures.complete)
        self._recovering.set(figures.recovering)
        self._lag_changes.set(figures.lag_changes)
        self._lag_seconds.set(figures.lag_seconds)

    def feed(self, *, changes: int, loads: int, breaks: Mapping[str, int]) -> None:
        """Totals since the start: changes applied, loads of the whole table, and what broke the feed."""
        self._advance(self._changes, "changes", changes)
        self._advance(self._loads, "loads", loads)
        for reason, total in breaks.items():
            self._advance(self._breaks.labels(reason), reason, total)

    def self_check(self) -> None:
        """A complete round."""
        self._self_checks.inc()

    def self_check_difference(self, part: SelfCheckPart) -> None:
        self._self_check_differences.labels(part).inc()

    def store_alarms(self, alarms: Collection[str]) -> None:
        for alarm in get_args(StoreAlarm):
            self._store_alarms.labels(alarm).set(alarm in alarms)

    def script_run(self, script: str, seconds: float, status: IntEnum | None, error: StoreError | None) -> None:
        """Registrations and heartbeats are counted here, since the script alone decides what became of them."""
        self._store_calls.labels(script, _kind_of_failure(error) if error else "ok").inc()
        self._store_seconds.labels(script).observe(seconds)
        if status is not None:
            if kind := _REGISTRATIONS.get((script, status.name)):
                self._registrations.labels(kind).inc()
            elif (script, status.name) == ("heartbeat_broker", "UNCHANGED"):
                self._heartbeats.inc()

    # Leader

    def leading(self, token: int | None) -> None:
        """`token` of the lease that this worker holds. None: another worker leads and reports the leader's figures."""
        self._leader.set(token is not None)
        self._token.set(token or 0)
        if token is None:
            self._held.set(0)
            self._due.set(0)
            self.history(HistoryFigures())

    def scan(self) -> None:
        self._scans.inc()

    def expired(self, brokers: int) -> None:
        self._expired.inc(brokers)

    def expiry_held(self, held: bool) -> None:
        self._held.set(held)

    def expiry_due(self, brokers: int) -> None:
        self._due.set(brokers)

    def hold_began(self) -> None:
        self._holds.inc()

    def history(self, figures: HistoryFigures) -> None:
        self._history_entries.set(figures.entries)
        self._history_bytes.set(figures.bytes)
        self._history_used.set(figures.used_ratio)
        self._history_readers.set(figures.readers)
        self._history_reader_lag.set(figures.reader_lag_changes)

    def history_lost(self, entries: int) -> None:
        self._history_lost.inc(entries)

    # Connections of brokers

    def sessions(self, carried: int) -> None:
        """Number of broker instances registered over connections of this worker."""
        self._sessions.set(carried)

    def lost_connection(self, outcome: LossOutcome) -> None:
        self._lost_connections.labels(outcome).inc()

    def mass_disconnect(self) -> None:
        self._mass_disconnect.inc()

    def audited(self, port: str, outcome: str) -> None:
        """`port` is empty for what a worker does by itself."""
        self._audited.labels(port or "none", outcome).inc()

    # Process

    def draining(self) -> None:
        self._draining.set(1)

    def tasks(self, count: int) -> None:
        self._tasks.set(count)

    def limits(self, *, connections: int, memory_bytes: int) -> None:
        """`connections` of each port. `memory_bytes` is 0 without a limit."""
        self._connections_limit.set(connections)
        self._memory_limit.set(memory_bytes)

    def log_lines_left_out(self, total: int) -> None:
        self._advance(self._left_out, "log lines", total)

    # Names, labels and help texts

    def _build_counters(self) -> None:
        lookups = self._counter("lookups_total", "Route lookups by port and result.", ("port", "result"))
        # The hot path: children are made once, instead of being found by label for each request.
        self._lookups: dict[tuple[Port, LookupResult], Counter] = {}
        results: tuple[LookupResult, ...] = ("found", "not_found", "not_ready")
        for port in PORTS:
            for result in results:
                self._lookups[port, result] = lookups.labels(port, result)
        seconds = self._histogram(
            "lookup_seconds",
            "Time from the bytes of a route lookup to those of its answer, sampled.",
            ("port",),
            _LOOKUP_SECONDS,
        )
        self._lookup_seconds: dict[Port, Histogram] = {port: seconds.labels(port) for port in PORTS}
        self._loop_delay = self._histogram(
            "loop_delay_seconds", "How late a timer fires, which is how long a request waits.", (), _DELAY_SECONDS
        )
        self._registrations = self._counter("registrations_total", "Registrations by result.", ("kind",))
        for kind in get_args(RegistrationKind):
            self._registrations.labels(kind)
        self._heartbeats = self._counter("heartbeats_total", "Heartbeats accepted.")
        labels = ("method", "route", "status")
        self._http_requests = self._counter("http_requests_total", "HTTP requests answered.", labels)
        self._http_seconds = self._histogram(
            "http_request_seconds", "Time to answer an HTTP request.", ("route",), _REQUEST_SECONDS
        )
        self._remoting_seconds = self._histogram(
            "remoting_request_seconds",
            "Time to handle a RocketMQ request other than a lookup, without its time in the queue.",
            ("request",),
            _REQUEST_SECONDS,
        )
        refused = self._counter(
            "requests_refused_total", "Requests other than lookups answered with an error.", ("port", "reason")
        )
        self._requests_refused: dict[tuple[Port, Reason], Counter] = {
            (port, reason): refused.labels(port, reason) for port in PORTS for reason in REASONS
        }
        self._watchers = self._gauge("watchers", "Open watches.")
        self._audited = self._counter(
            "audit_records_total", "Changes and refusals by port and outcome.", ("port", "outcome")
        )
        for port in PORTS:
            for outcome in ("done", "refused", "failed"):
                self._audited.labels(port, outcome)

    def _build_connections(self) -> None:
        connections = self._gauge("connections", "Open connections.", ("port",))
        self._connections: dict[Port, Gauge] = {port: connections.labels(port) for port in PORTS}
        self._refused = self._counter(
            "connections_refused_total", "Connections closed before their first request, by reason.", ("port", "reason")
        )
        self._failed_handshakes = self._counter("tls_handshakes_failed_total", "TLS handshakes that failed.", ("port",))
        # A counter that appears with its first event hides that event from increase().
        for port in PORTS:
            self._failed_handshakes.labels(port)
            for reason in _CONNECTION_REFUSALS:
                self._refused.labels(port, reason)

    def _build_table(self) -> None:
        self._brokers = self._gauge("brokers", "Broker instances in the table.")
        self._topics = self._gauge("topics", "Topics in the table.")
        self._clusters = self._gauge("clusters", "Clusters in the table.")
        self._version = self._gauge("replica_version", "Version of this worker's table.")
        self._stale_seconds = self._gauge("replica_stale_seconds", "Age of the last contact with the store.")
        self._open_access = self._gauge("open_access", "1 when everyone who can connect may do this.", ("to",))
        self._complete = self._gauge("replica_complete", "1 when the whole table is loaded.")
        self._digest = self._gauge(
            "replica_digest", "48 bits of the table's digest. Workers of one version have the same."
        )
        self._recovering = self._gauge("recovering", "1 while answers include data that the store has lost.")

    def _build_feed(self) -> None:
        self._totals: dict[str, int] = {}
        self._changes = self._counter("feed_changes_total", "Changes applied from the store's stream.")
        self._loads = self._counter("feed_loads_total", "Loads of the whole table.")
        self._breaks = self._counter(
            "feed_breaks_total", "Events that made the replica verify or reload its table.", ("reason",)
        )
        self._lag_changes = self._gauge("feed_lag_changes", "Changes known to be in the store and not applied yet.")
        self._lag_seconds = self._gauge("feed_lag_seconds", "Age of the oldest of these changes.")
        labels = ("script", "result")
        self._store_calls = self._counter("store_calls_total", "Calls to the store, by script and result.", labels)
        self._store_seconds = self._histogram(
            "store_call_seconds", "Time of a call to the store.", ("script",), _STORE_SECONDS
        )

    def _build_store_checks(self) -> None:
        self._self_checks = self._counter("self_checks_total", "Complete comparisons of the store with the table.")
        self._self_check_differences = self._counter(
            "self_check_differences_total", "Objects that differed between the store and the table.", ("part",)
        )
        for part in get_args(SelfCheckPart):
            self._self_check_differences.labels(part)
        self._store_alarms = self._gauge(
            "store_alarm", "1 while the store is configured or used in a way that endangers the data.", ("alarm",)
        )
        for alarm in get_args(StoreAlarm):
            self._store_alarms.labels(alarm)

    def _build_leader(self) -> None:
        self._leader = self._gauge("leader", "1 on the leader, the worker that expires brokers.")
        self._token = self._gauge("leader_token", "Fencing token of the lease held; 0 without a lease.")
        self._scans = self._counter("scans_total", "Scans for silent brokers.")
        self._expired = self._counter("expired_brokers_total", "Broker instances removed for silence.")
        self._held = self._gauge("expiry_held", "1 while removals wait for an operator.")
        self._due = self._gauge("expiry_due_brokers", "Broker instances past their deadline at the last scan.")
        self._holds = self._counter("expiry_holds_total", "How often a hold of removals began.")

    def _build_port(self) -> None:
        self._waiting = self._gauge("remoting_waiting_requests", "Requests waiting in the queue.", ("queue",))
        self._slow_ms = self._gauge(
            "remoting_waiting_seconds", "How long the request at the head of the queue has waited.", ("queue",)
        )
        self._overloaded = self._counter(
            "remoting_overloaded_total", "Requests answered `system busy` because the queue was full."
        )
        self._violations = self._counter(
            "remoting_violations_total", "Connections closed for breaking the protocol.", ("reason",)
        )
        self._cut = self._counter("remoting_closed_total", "Connections closed by deadlines of the port.", ("reason",))

    def _build_sessions(self) -> None:
        self._sessions = self._gauge("sessions", "Broker instances connected to this worker.")
        self._lost_connections = self._counter(
            "lost_connections_total",
            "Brokers that lost their last connection to this worker, by result.",
            ("outcome",),
        )
        for outcome in get_args(LossOutcome):
            self._lost_connections.labels(outcome)
        self._mass_disconnect = self._counter(
            "mass_disconnect_alarms_total",
            "Mass disconnects: too many sessions ended together, or most workers vanished and no heartbeat arrived "
            "since; silent brokers are not removed then.",
        )

    def _build_history(self) -> None:
        self._history_entries = self._gauge("history_entries", "Changes in the history, reported by the leader.")
        self._history_bytes = self._gauge("history_bytes", "Bytes of these changes, accurate to about 1 MiB.")
        self._history_used = self._gauge(
            "history_used_ratio", "Share in use of the limit in entries or bytes, whichever is nearer."
        )
        self._history_readers = self._gauge(
            "history_readers", "Readers of the history that reported their position recently."
        )
        self._history_reader_lag = self._gauge(
            "history_reader_lag_changes", "Changes that the slowest reader has not consumed."
        )
        self._history_lost = self._counter(
            "history_lost_entries_total", "Changes trimmed to save memory although a reader still needed them."
        )

    def _build_process(self) -> None:
        self._draining = self._gauge("draining", "1 while this worker stops.")
        self._tasks = self._gauge("tasks", "Unfinished asyncio tasks.")
        self._connections_limit = self._gauge("connections_limit", "Maximum number of connections of each port.")
        self._memory_limit = self._gauge("memory_limit_bytes", "Memory limit of the process; 0: no limit.")
        self._left_out = self._counter("log_lines_left_out_total", "Log lines suppressed because there were too many.")

    def _advance(self, counter: Counter, name: str, total: int) -> None:
        """Sets a counter to a total counted elsewhere: a counter can only be increased by the difference."""
        counter.inc(max(total - self._totals.get(name, 0), 0))
        self._totals[name] = total

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"routebook_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"routebook_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"routebook_{name}", text, labels, registry=self.registry, buckets=buckets)


def _kind_of_failure(error: StoreError) -> str:
    """`StoreUnavailableError` becomes `store_unavailable`."""
    words = type(error).__name__.removesuffix("Error")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words).lstrip("_")


def _value(metric: Counter | Gauge) -> int:
    """The value of a metric without labels, or of one child."""
    return int(next(iter(metric.collect())).samples[0].value)
