"""The metrics of one worker."""

from prometheus_client.parser import text_string_to_metric_families

from routebook import __version__
from routebook.observability.metrics import HistoryFigures, Metrics, ReplicaFigures
from routebook.store.namespace import Status


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def figures(**values: float | str) -> ReplicaFigures:
    usual = {"version": 1, "digest": "0" * 32, "stale_seconds": 0.0, "complete": True, "recovering": False}
    return ReplicaFigures(**{**usual, "lag_changes": 0, "lag_seconds": 0.0, **values})  # type: ignore[arg-type]


def busy_worker(times: int) -> Metrics:
    metrics = Metrics()
    for _ in range(times):
        metrics.lookup("http", "found")
        metrics.http_request("GET", "/v1/routes/{topic}", 200, 0.001)
        metrics.watcher_added()
        metrics.script_run("touch_broker", 0.0003, Status.UNCHANGED, None)
        metrics.scan()
    metrics.feed(changes=times, loads=1, breaks={"gap": times})
    metrics.expired(times)
    metrics.table(brokers=7, topics=11, clusters=2)
    metrics.replica(figures(version=100 + times, stale_seconds=times, complete=times != 3))
    metrics.leading(42 if times == 2 else None)
    metrics.expiry_held(times == 2)
    return metrics


def test_events_are_counted() -> None:
    found = samples(busy_worker(2).exposition().decode())
    assert found["routebook_build_info", (("version", __version__),)] == 1
    assert found["routebook_lookups_total", (("port", "http"), ("result", "found"))] == 2
    assert found["routebook_lookups_total", (("port", "remoting"), ("result", "not_ready"))] == 0
    assert found["routebook_registrations_total", (("kind", "unchanged"),)] == 2
    assert found["routebook_store_calls_total", (("result", "ok"), ("script", "touch_broker"))] == 2
    assert found["routebook_expired_brokers_total", ()] == 2
    assert (found["routebook_leader", ()], found["routebook_leader_token", ()]) == (1, 42)
    assert found["routebook_feed_loads_total", ()] == 1


def test_totals_counted_elsewhere_become_counters() -> None:
    metrics = Metrics()
    for gaps in (0, 2, 2, 5):
        metrics.feed(changes=10 * gaps, loads=1 + gaps, breaks={"gap": gaps})
    found = samples(metrics.exposition().decode())
    assert found["routebook_feed_breaks_total", (("reason", "gap"),)] == 5
    assert found["routebook_feed_changes_total", ()] == 50
    assert found["routebook_feed_loads_total", ()] == 6


def test_two_workers_in_one_process_share_no_numbers() -> None:
    assert samples(busy_worker(2).exposition().decode()) != samples(busy_worker(3).exposition().decode())


def test_values_are_measured_when_requested() -> None:
    metrics = Metrics()
    ages = iter([1.5, 2.5])
    metrics.before_exposition(lambda: metrics.replica(figures(stale_seconds=next(ages))))
    for expected in (1.5, 2.5):
        assert samples(metrics.exposition().decode())["routebook_replica_stale_seconds", ()] == expected


def test_the_leaders_figures_end_with_its_lease() -> None:
    metrics = Metrics()
    metrics.leading(7)
    metrics.expiry_held(True)
    metrics.expiry_due(5)
    metrics.history(HistoryFigures(entries=9, bytes=900, used_ratio=0.5, readers=1, reader_lag_changes=3))
    assert samples(metrics.exposition().decode())["routebook_history_reader_lag_changes", ()] == 3
    metrics.leading(None)
    found = samples(metrics.exposition().decode())
    names = ("leader", "expiry_held", "expiry_due_brokers", "history_entries", "history_reader_lag_changes")
    assert {found[f"routebook_{name}", ()] for name in names} == {0.0}


def test_the_digest_is_a_number_that_a_sample_holds_exactly() -> None:
    metrics = Metrics()
    for digest in ("f" * 32, "0" * 20 + "fffffffffffe"):
        metrics.replica(figures(digest=digest))
        values = samples(metrics.exposition().decode())["routebook_replica_digest", ()]
        assert int(values) == int(digest[-12:], 16)


def test_counters_used_by_alerts_exist_before_their_first_event() -> None:
    """`increase` does not see the first event of a counter that appears with it."""
    found = samples(Metrics().exposition().decode())
    names = {name for name, _ in found}
    for name in (
        "registrations_total",
        "requests_refused_total",
        "lost_connections_total",
        "connections_refused_total",
        "tls_handshakes_failed_total",
        "expired_brokers_total",
        "mass_disconnect_alarms_total",
        "history_lost_entries_total",
        "remoting_overloaded_total",
    ):
        assert f"routebook_{name}" in names
