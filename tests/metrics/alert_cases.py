"""For each alert, series that must make it fire and series that must not.

The series are those of one service with two workers, a and b, scraped every 30 seconds. Values are in promtool's
notation: `0+3x10` means 0, 3, 6 and so on for ten steps; `_` is a scrape without a value.
"""

from dataclasses import dataclass, field

NAMESPACE, JOB = "mq", "mq/names"

Series = dict[str, str]


def on(worker: str, metric: str, **labels: str) -> str:
    all_labels = {"namespace": NAMESPACE, "job": JOB, "instance": worker, **labels}
    return metric + "{" + ",".join(f'{name}="{value}"' for name, value in all_labels.items()) + "}"


def both(metric: str, values: str, **labels: str) -> Series:
    return {on("a", metric, **labels): values, on("b", metric, **labels): values}


@dataclass(frozen=True, slots=True)
class Case:
    alert: str
    fires: Series
    silent: list[Series]
    at: str = "10m"
    """Time at which the alert is evaluated."""
    labels: dict[str, str] = field(default_factory=dict)
    """Expected labels of the alert, besides namespace, job and severity."""


ON_A = {"instance": "a"}
UP = both("routebook_build_info", "1x200", version="1.0")
STORE_REACHABLE = both("routebook_replica_stale_seconds", "0x200")

WORKERS = [
    Case(
        "RoutebookAbsent",
        both("routebook_build_info", "1x10 stale", version="1.0"),
        [UP, UP | {on("a", "routebook_build_info", version="1.0"): "1x10 stale"}, {}],
    ),
    Case(
        "RoutebookWorkerDown",
        UP | {on("a", "routebook_build_info", version="1.0"): "1x10 stale", on("a", "up"): "1x10 0x100"},
        [UP | both("up", "1x100"), {on("a", "up"): "0x100"}, UP | {on("a", "up"): "1x10 stale"}],
        labels=ON_A,
    ),
    Case(
        "RoutebookWorkerProcessesMissing",
        {on("a", "routebook_workers"): "4x5 3x100", on("a", "routebook_workers_wanted"): "4x105"},
        [both("routebook_workers", "4x100") | both("routebook_workers_wanted", "4x100"), UP],
        labels=ON_A,
    ),
    Case(
        "RoutebookRestarting",
        UP | {on("a", "process_start_time_seconds"): "1000x5 1150x5 1300x5 1450x40"},
        [
            UP | {on("a", "process_start_time_seconds"): "1000x5 1150x100"},
            {on("other", "process_start_time_seconds"): "1000x5 1150x5 1300x5 1450x40"},
            UP | {on("a", "routebook_worker_restarts_total"): "0x5 1x60"},
        ],
        labels=ON_A,
    ),
    Case(
        "RoutebookRestarting",
        UP | {on("a", "routebook_worker_restarts_total"): "0x5 1x5 2x5 4x40"},
        [],
        labels=ON_A,
    ),
    Case(
        "RoutebookMemoryNearLimit",
        {on("a", "process_resident_memory_bytes"): "95x100", on("a", "routebook_memory_limit_bytes"): "100x100"},
        [
            {on("a", "process_resident_memory_bytes"): "80x100", on("a", "routebook_memory_limit_bytes"): "100x100"},
            {on("a", "process_resident_memory_bytes"): "95x100", on("a", "routebook_memory_limit_bytes"): "0x100"},
        ],
        labels=ON_A,
    ),
    Case(
        "RoutebookLoopSlow",
        {
            on("a", "routebook_loop_delay_seconds_bucket", le="0.1"): "0+290x100",
            on("a", "routebook_loop_delay_seconds_bucket", le="0.5"): "0+300x100",
            on("a", "routebook_loop_delay_seconds_bucket", le="+Inf"): "0+300x100",
        },
        [
            {
                on("a", "routebook_loop_delay_seconds_bucket", le="0.01"): "0+299x100",
                on("a", "routebook_loop_delay_seconds_bucket", le="0.1"): "0+300x100",
                on("a", "routebook_loop_delay_seconds_bucket", le="+Inf"): "0+300x100",
            }
        ],
        at="20m",
        labels=ON_A,
    ),
    Case(
        "RoutebookConnectionsNearLimit",
        {
            on("a", "routebook_connections", port="remoting"): "95x100",
            on("a", "routebook_connections_limit"): "100x100",
        },
        [
            {
                on("a", "routebook_connections", port="remoting"): "9x100",
                on("a", "routebook_connections_limit"): "100x100",
            }
        ],
        labels={"instance": "a", "port": "remoting"},
    ),
    Case(
        "RoutebookConnectionsRefused",
        both("routebook_connections_refused_total", "0+5x100", port="http", reason="full"),
        [
            both("routebook_connections_refused_total", "0x100", port="http", reason="full"),
            both("routebook_connections_refused_total", "0+5x100", port="http", reason="silent"),
            both("routebook_connections_refused_total", "0x5 3x100", port="http", reason="full"),
        ],
        at="15m",
        labels={"port": "http", "reason": "full"},
    ),
    Case(
        "RoutebookFileDescriptorsNearLimit",
        UP | {on("a", "process_open_fds"): "95x100", on("a", "process_max_fds"): "100x100"},
        [
            UP | {on("a", "process_open_fds"): "50x100", on("a", "process_max_fds"): "100x100"},
            {on("other", "process_open_fds"): "95x100", on("other", "process_max_fds"): "100x100"},
        ],
        labels=ON_A,
    ),
    Case(
        "RoutebookDrainCutConnections",
        {
            on("a", "routebook_connections", port="remoting"): "9x8 7 stale",
            on("a", "routebook_draining"): "0x8 1 stale",
        },
        [
            # All peers had moved; the worker is still draining; it was killed without draining.
            {
                on("a", "routebook_connections", port="remoting"): "9x8 0 stale",
                on("a", "routebook_draining"): "0x8 1 stale",
            },
            {on("a", "routebook_connections", port="remoting"): "9x50", on("a", "routebook_draining"): "0x8 1x50"},
            {
                on("a", "routebook_connections", port="remoting"): "9x8 stale",
                on("a", "routebook_draining"): "0x8 stale",
            },
        ],
    ),
    Case(
        "RoutebookReleasesMixed",
        {
            on("a", "routebook_build_info", version="1.0"): "1x200",
            on("b", "routebook_build_info", version="1.1"): "1x200",
        },
        [UP, {on("a", "routebook_build_info", version="1.0"): "1x20 stale"} | UP],
        at="70m",
    ),
]

TABLE = [
    Case(
        "RoutebookStoreAway",
        both("routebook_replica_stale_seconds", "0x5 30+30x100"),
        [STORE_REACHABLE, STORE_REACHABLE | {on("a", "routebook_replica_stale_seconds"): "0x5 30+30x100"}],
    ),
    Case(
        "RoutebookReplicaStale",
        STORE_REACHABLE | {on("a", "routebook_replica_stale_seconds"): "0x5 30+30x100"},
        [STORE_REACHABLE, {on("a", "routebook_replica_stale_seconds"): "0x5 30 0x100"}],
        labels=ON_A,
    ),
    Case(
        "RoutebookReplicaIncomplete",
        {on("a", "routebook_replica_complete"): "0x100"},
        [{on("a", "routebook_replica_complete"): "0x3 1x100"}],
        labels=ON_A,
    ),
    Case(
        "RoutebookFeedLag",
        {on("a", "routebook_feed_lag_seconds"): "0+10x100"},
        [both("routebook_feed_lag_seconds", "0.2x100"), {on("a", "routebook_feed_lag_seconds"): "0x5 9 0x100"}],
        labels=ON_A,
    ),
    Case(
        "RoutebookVersionsApart",
        {on("a", "routebook_replica_version"): "100+50x100", on("b", "routebook_replica_version"): "100x100"},
        [
            both("routebook_replica_version", "100x100"),
            # The workers of a busy fleet, scraped at different instants.
            {on("a", "routebook_replica_version"): "100+50x100", on("b", "routebook_replica_version"): "60+50x100"},
            # A new history, and a worker that has just started.
            both("routebook_replica_version", "100x10 3+1x100"),
            {on("a", "routebook_replica_version"): "100x100", on("b", "routebook_replica_version"): "_x15 0x2 100x100"},
        ],
    ),
    Case(
        "RoutebookTablesDiffer",
        both("routebook_replica_version", "100x100")
        | {on("a", "routebook_replica_digest"): "11x100", on("b", "routebook_replica_digest"): "12x100"},
        [
            both("routebook_replica_version", "100x100") | both("routebook_replica_digest", "11x100"),
            {on("a", "routebook_replica_version"): "100x100", on("b", "routebook_replica_version"): "101x100"}
            | {on("a", "routebook_replica_digest"): "11x100", on("b", "routebook_replica_digest"): "12x100"},
        ],
    ),
    Case("RoutebookTablesDiffer", {on("a", "routebook_workers_disagree"): "1x100"}, []),
    Case(
        "RoutebookStoreLostData",
        both("routebook_feed_breaks_total", "0x5 1x100", reason="loss"),
        [
            both("routebook_feed_breaks_total", "0x100", reason="loss") | both("routebook_recovering", "0x100"),
            both("routebook_feed_breaks_total", "0x5 1x100", reason="reconnect"),
        ],
    ),
    Case("RoutebookStoreLostData", both("routebook_recovering", "1x100"), []),
    Case(
        "RoutebookStoreKeysDeleted",
        both("routebook_self_check_differences_total", "0x5 1x100", part="group"),
        [both("routebook_self_check_differences_total", "1x100", part="group")],
    ),
    Case(
        "RoutebookStoreAlarm",
        both("routebook_store_alarm", "1x100", alarm="eviction"),
        [both("routebook_store_alarm", "0x100", alarm="eviction")],
        labels={"alarm": "eviction"},
    ),
    Case(
        "RoutebookStoreCallsFail",
        both("routebook_store_calls_total", "0+90x100", script="a", result="ok")
        | both("routebook_store_calls_total", "0+10x100", script="a", result="store_unavailable"),
        [
            both("routebook_store_calls_total", "0+90x100", script="a", result="ok")
            | both("routebook_store_calls_total", "0x5 1x100", script="a", result="store_unavailable"),
            both("routebook_store_calls_total", "0+90x100", script="a", result="ok"),
        ],
    ),
    Case(
        "RoutebookStoreSlow",
        both("routebook_store_call_seconds_bucket", "0+90x100", script="s", le="0.1")
        | both("routebook_store_call_seconds_bucket", "0+100x100", script="s", le="0.5")
        | both("routebook_store_call_seconds_bucket", "0+100x100", script="s", le="+Inf"),
        [
            both("routebook_store_call_seconds_bucket", "0+100x100", script="s", le="0.1")
            | both("routebook_store_call_seconds_bucket", "0+100x100", script="s", le="+Inf")
        ],
        at="20m",
    ),
]

REQUESTS = [
    Case(
        "RoutebookLookupsFail",
        both("routebook_lookups_total", "0+95x100", port="remoting", result="found")
        | both("routebook_lookups_total", "0+5x100", port="remoting", result="not_ready"),
        [
            both("routebook_lookups_total", "0+95x100", port="remoting", result="found")
            | both("routebook_lookups_total", "0+5x100", port="remoting", result="not_found")
            | both("routebook_lookups_total", "0x100", port="remoting", result="not_ready"),
            both("routebook_lookups_total", "0x100", port="remoting", result="not_ready"),
        ],
    ),
    Case(
        "RoutebookWritesRefused",
        both("routebook_requests_refused_total", "0+5x100", port="remoting", reason="store"),
        [
            both("routebook_requests_refused_total", "0x100", port="remoting", reason="store"),
            both("routebook_requests_refused_total", "0+5x100", port="remoting", reason="refused"),
        ],
    ),
    Case(
        "RoutebookRegistrationsRefused",
        both("routebook_registrations_total", "0+2x100", kind="turned_down"),
        [
            both("routebook_registrations_total", "0+50x100", kind="unchanged"),
            both("routebook_registrations_total", "0x5 2x100", kind="refused"),
        ],
        at="20m",
    ),
    Case(
        "RoutebookRequestsBreak",
        both("routebook_requests_refused_total", "0x5 1x100", port="http", reason="failed"),
        [
            both("routebook_requests_refused_total", "0x100", port="http", reason="failed"),
            both("routebook_requests_refused_total", "0+9x100", port="http", reason="invalid"),
        ],
    ),
    Case(
        "RoutebookOverloaded",
        {on("a", "routebook_remoting_overloaded_total"): "0+50x100"},
        [
            both("routebook_remoting_overloaded_total", "0x100")
            | both("routebook_remoting_waiting_seconds", "0.1x100", queue="others")
        ],
        labels=ON_A,
    ),
    Case(
        "RoutebookOverloaded",
        {on("a", "routebook_remoting_waiting_seconds", queue="others"): "4x100"},
        [],
        labels=ON_A,
    ),
    Case(
        "RoutebookTlsHandshakesFail",
        both("routebook_tls_handshakes_failed_total", "0+5x100", port="remoting"),
        [both("routebook_tls_handshakes_failed_total", "0x5 4x100", port="remoting")],
        at="15m",
        labels={"port": "remoting"},
    ),
]

EXPIRY = [
    Case(
        "RoutebookNoLeader",
        STORE_REACHABLE | both("routebook_leader", "0x100"),
        [
            STORE_REACHABLE | {on("a", "routebook_leader"): "1x100", on("b", "routebook_leader"): "0x100"},
            both("routebook_leader", "0x100") | both("routebook_replica_stale_seconds", "30+30x100"),
        ],
    ),
    Case(
        "RoutebookTwoLeaders",
        both("routebook_leader", "1x100"),
        [{on("a", "routebook_leader"): "1x10 0x100", on("b", "routebook_leader"): "0x9 1x100"}],
    ),
    Case(
        "RoutebookScansStopped",
        STORE_REACHABLE | both("routebook_scans_total", "50x100"),
        [
            STORE_REACHABLE | {on("a", "routebook_scans_total"): "0+6x100", on("b", "routebook_scans_total"): "0x100"},
            both("routebook_scans_total", "50x100") | both("routebook_replica_stale_seconds", "30+30x100"),
        ],
        at="20m",
    ),
    Case(
        "RoutebookExpiryHeld",
        {on("a", "routebook_expiry_held"): "0x5 1x100", on("b", "routebook_expiry_held"): "0x100"},
        [both("routebook_expiry_held", "0x100")],
    ),
    Case(
        "RoutebookExpiriesUnusual",
        both("routebook_brokers", "100x100")
        | both("routebook_expired_brokers_total", "0x5 2x100")
        | both("routebook_lost_connections_total", "0x5 4x100", outcome="removed_refused"),
        [
            both("routebook_brokers", "100x100")
            | both("routebook_expired_brokers_total", "0x5 1x100")
            | both("routebook_lost_connections_total", "0x100", outcome="removed_refused"),
            both("routebook_brokers", "100x100")
            | both("routebook_expired_brokers_total", "0x100")
            | both("routebook_lost_connections_total", "0x100", outcome="removed_refused")
            | both("routebook_lost_connections_total", "0x5 80x100", outcome="elsewhere"),
        ],
    ),
    Case(
        "RoutebookMassDisconnect",
        {on("a", "routebook_mass_disconnect_alarms_total"): "0x5 1x100"},
        [both("routebook_mass_disconnect_alarms_total", "0x100")],
    ),
]

HISTORY = [
    Case(
        "RoutebookHistoryNearLimit",
        {on("a", "routebook_history_used_ratio"): "0.9x100", on("b", "routebook_history_used_ratio"): "0x100"},
        [both("routebook_history_used_ratio", "0.4x100")],
    ),
    Case(
        "RoutebookReaderLags",
        {on("a", "routebook_history_reader_lag_changes"): "150000x100"},
        [
            {on("a", "routebook_history_reader_lag_changes"): "150000x20 500x80"},
            both("routebook_history_reader_lag_changes", "5000x100"),
        ],
        at="30m",
    ),
    Case(
        "RoutebookHistoryTrimmed",
        {on("a", "routebook_history_lost_entries_total"): "0x5 2000x100"},
        [both("routebook_history_lost_entries_total", "0x100")],
    ),
]

CASES = WORKERS + TABLE + REQUESTS + EXPIRY + HISTORY
