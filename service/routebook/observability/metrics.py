"""What a worker counts, in the product's words. Callers say what happened; names and labels live here alone.

One `Metrics` a worker, on a registry of its own: two workers in one process (tests) do not share numbers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

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

Port = Literal["http", "remoting"]
PORTS: tuple[Port, ...] = ("http", "remoting")
LookupResult = Literal["found", "not_found", "not_ready"]
RegistrationKind = Literal["unchanged", "changed", "refused", "turned_down"]

LossOutcome = Literal[
    "elsewhere", "returned", "alive", "removed_at_once", "removed_refused", "removed_silent", "network_ill", "undecided"
]
"""What became of a broker whose last connection to a worker was lost. After `network_ill` and `undecided` its deadline
decides.
"""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# A call takes 0.1 ms on a socket and up to 20 ms for the largest registration; then come outages.
_STORE_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 2.0)
_HTTP_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class PortFigures:
    """What the remoting port counts by itself, since a metric's own counter would cost each lookup a lock. All but
    `waiting` and `slow_ms` are totals since the start.
    """

    found: int
    not_found: int
    not_ready: int
    waiting: Mapping[str, int]
    slow_ms: Mapping[str, int]
    refused: int
    violations: Mapping[str, int]
    cut: Mapping[str, int]


class Metrics:
    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it so
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._before: list[Callable[[], None]] = []
        self._build_counters()
        self._build_connections()
        self._build_table()
        self._build_feed()
        self._build_leader()
        self._build_port()
        self._build_sessions()
        self._gauge("build_info", "Always 1; the version as a label.", ("version",)).labels(__version__).set(1)

    def exposition(self) -> bytes:
        """Prometheus text. Values that age by themselves are taken now."""
        for callback in self._before:
            callback()
        return generate_latest(self.registry)

    def before_exposition(self, callback: Callable[[], None]) -> None:
        """For gauges whose truth lies elsewhere: `callback` sets them just before each answer."""
        self._before.append(callback)

    # What the ports see

    def lookup(self, port: Port, result: LookupResult) -> None:
        self._lookups[port, result].inc()

    def registration(self, kind: RegistrationKind) -> None:
        self._registrations.labels(kind).inc()

    def heartbeat(self) -> None:
        self._heartbeats.inc()

    def http_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is the pattern, never the path: labels must stay few."""
        self._http_requests.labels(method, route, str(status)).inc()
        self._http_seconds.labels(route).observe(seconds)

    def watcher_came(self) -> None:
        self._watchers.inc()

    def watcher_left(self) -> None:
        self._watchers.dec()

    def connections(self, port: Port, count: int) -> None:
        self._connections[port].set(count)

    def connection_refused(self, port: Port, reason: str) -> None:
        """`reason` is one of the few words that `accepting` knows."""
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

    # What the replica sees

    def table(self, *, brokers: int, topics: int, clusters: int) -> None:
        self._brokers.set(brokers)
        self._topics.set(topics)
        self._clusters.set(clusters)

    def replica(self, *, version: int, stale_seconds: float, complete: bool) -> None:
        self._version.set(version)
        self._stale_seconds.set(stale_seconds)
        self._complete.set(complete)

    def feed(self, *, changes: int, loads: int, breaks: Mapping[str, int]) -> None:
        """Totals since the start: changes applied, loads of the whole table, and what broke the feed."""
        self._advance(self._changes, "changes", changes)
        self._advance(self._loads, "loads", loads)
        for reason, total in breaks.items():
            self._advance(self._breaks.labels(reason), reason, total)

    def store_call(self, script: str, result: str, seconds: float) -> None:
        """`result` is ok, or the kind of failure."""
        self._store_calls.labels(script, result).inc()
        self._store_seconds.labels(script).observe(seconds)

    # What the leader does

    def leading(self, token: int | None) -> None:
        """The token of the lease this worker holds; None: another one leads."""
        self._leader.set(token is not None)
        self._token.set(token or 0)

    def scan(self) -> None:
        self._scans.inc()

    def expired(self, brokers: int) -> None:
        self._expired.inc(brokers)

    def expiry_held(self, held: bool) -> None:
        self._held.set(held)

    def history_lost(self, entries: int) -> None:
        self._history_lost.inc(entries)

    # What connections of brokers do

    def sessions(self, carried: int) -> None:
        """Broker instances that connections of this worker carry."""
        self._sessions.set(carried)

    def lost_connection(self, outcome: LossOutcome) -> None:
        self._lost_connections.labels(outcome).inc()

    def network_ill(self) -> None:
        self._network_ill.inc()

    # What they are called

    def _build_counters(self) -> None:
        lookups = self._counter("lookups_total", "Route lookups by port and result.", ("port", "result"))
        # The one hot path: children made once, not looked up by label for each request.
        self._lookups: dict[tuple[Port, LookupResult], Counter] = {}
        results: tuple[LookupResult, ...] = ("found", "not_found", "not_ready")
        for port in PORTS:
            for result in results:
                self._lookups[port, result] = lookups.labels(port, result)
        self._registrations = self._counter("registrations_total", "Registrations by what they did.", ("kind",))
        self._heartbeats = self._counter("heartbeats_total", "Heartbeats accepted.")
        labels = ("method", "route", "status")
        self._http_requests = self._counter("http_requests_total", "HTTP requests answered.", labels)
        self._http_seconds = self._histogram(
            "http_request_seconds", "Time to answer an HTTP request.", ("route",), _HTTP_SECONDS
        )
        self._watchers = self._gauge("watchers", "Open watches.")

    def _build_connections(self) -> None:
        connections = self._gauge("connections", "Open connections.", ("port",))
        self._connections: dict[Port, Gauge] = {port: connections.labels(port) for port in PORTS}
        self._refused = self._counter(
            "connections_refused_total", "Connections closed before their first request, by reason.", ("port", "reason")
        )
        self._failed_handshakes = self._counter("tls_handshakes_failed_total", "TLS handshakes that failed.", ("port",))

    def _build_table(self) -> None:
        self._brokers = self._gauge("brokers", "Broker instances in the table.")
        self._topics = self._gauge("topics", "Topics in the table.")
        self._clusters = self._gauge("clusters", "Clusters in the table.")
        self._version = self._gauge("replica_version", "Version of the table this worker answers from.")
        self._stale_seconds = self._gauge("replica_stale_seconds", "Age of the last contact with the store.")
        self._complete = self._gauge("replica_complete", "1 when the whole table is loaded.")

    def _build_feed(self) -> None:
        self._totals: dict[str, int] = {}
        self._changes = self._counter("feed_changes_total", "Changes taken from the store's stream.")
        self._loads = self._counter("feed_loads_total", "Loads of the whole table.")
        self._breaks = self._counter("feed_breaks_total", "What made the replica doubt its table.", ("reason",))
        labels = ("script", "result")
        self._store_calls = self._counter("store_calls_total", "Calls to the store, by script and result.", labels)
        self._store_seconds = self._histogram(
            "store_call_seconds", "Time of a call to the store.", ("script",), _STORE_SECONDS
        )

    def _build_leader(self) -> None:
        self._leader = self._gauge("leader", "1 on the worker that expires.")
        self._token = self._gauge("leader_token", "Token of the lease held, 0 without.")
        self._scans = self._counter("scans_total", "Scans for silent brokers.")
        self._expired = self._counter("expired_brokers_total", "Broker instances removed for silence.")
        self._held = self._gauge("expiry_held", "1 while a mass expiry waits for an operator.")
        self._history_lost = self._counter(
            "history_lost_entries_total", "Changes trimmed for want of memory that were still to be kept."
        )

    def _build_port(self) -> None:
        self._waiting = self._gauge("remoting_waiting_requests", "Requests that wait for their turn.", ("queue",))
        self._slow_ms = self._gauge(
            "remoting_waiting_seconds", "How long the request at the head of the queue has waited.", ("queue",)
        )
        self._overloaded = self._counter(
            "remoting_overloaded_total", "Requests answered `system busy`: the queue was full."
        )
        self._violations = self._counter(
            "remoting_violations_total", "Connections cut off for breaking the protocol.", ("reason",)
        )
        self._cut = self._counter("remoting_closed_total", "Connections closed by deadlines of the port.", ("reason",))

    def _build_sessions(self) -> None:
        self._sessions = self._gauge("sessions", "Broker instances connected to this worker.")
        self._lost_connections = self._counter(
            "lost_connections_total",
            "Brokers whose last connection here was lost, by what became of them.",
            ("outcome",),
        )
        self._network_ill = self._counter(
            "network_ill_alarms_total", "Alarms: so many sessions ended together that nobody was removed for silence."
        )

    def _advance(self, counter: Counter, name: str, total: int) -> None:
        """Somebody else counts; a counter here can only be told by how much that grew."""
        counter.inc(max(total - self._totals.get(name, 0), 0))
        self._totals[name] = total

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"routebook_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"routebook_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"routebook_{name}", text, labels, registry=self.registry, buckets=buckets)
