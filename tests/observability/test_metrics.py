"""What is counted, and how several workers' numbers become one."""

from prometheus_client.parser import text_string_to_metric_families

from routebook import __version__
from routebook.observability.exposition import merge_expositions
from routebook.observability.metrics import Metrics


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def busy_worker(times: int) -> Metrics:
    metrics = Metrics()
    for _ in range(times):
        metrics.lookup("http", "found")
        metrics.registration("unchanged")
        metrics.heartbeat()
        metrics.http_request("GET", "/v1/routes/{topic}", 200, 0.001)
        metrics.watcher_came()
        metrics.store_call("touch_broker", "ok", 0.0003)
        metrics.scan()
    metrics.feed(changes=times, loads=1, breaks={"gap": times})
    metrics.expired(times)
    metrics.table(brokers=7, topics=11, clusters=2)
    metrics.replica(version=100 + times, stale_seconds=times, complete=times != 3)
    metrics.leading(42 if times == 2 else None)
    metrics.expiry_held(times == 2)
    return metrics


def test_what_happened_can_be_read() -> None:
    found = samples(busy_worker(2).exposition().decode())
    assert found["routebook_build_info", (("version", __version__),)] == 1
    assert found["routebook_lookups_total", (("port", "http"), ("result", "found"))] == 2
    assert found["routebook_lookups_total", (("port", "remoting"), ("result", "not_ready"))] == 0
    assert found["routebook_registrations_total", (("kind", "unchanged"),)] == 2
    assert found["routebook_store_calls_total", (("result", "ok"), ("script", "touch_broker"))] == 2
    assert found["routebook_expired_brokers_total", ()] == 2
    assert (found["routebook_leader", ()], found["routebook_leader_token", ()]) == (1, 42)
    assert found["routebook_feed_loads_total", ()] == 1


def test_totals_that_somebody_else_counts_become_counters() -> None:
    metrics = Metrics()
    for gaps in (0, 2, 2, 5):
        metrics.feed(changes=10 * gaps, loads=1 + gaps, breaks={"gap": gaps})
    found = samples(metrics.exposition().decode())
    assert found["routebook_feed_breaks_total", (("reason", "gap"),)] == 5
    assert found["routebook_feed_changes_total", ()] == 50
    assert found["routebook_feed_loads_total", ()] == 6


def test_two_workers_in_one_process_share_no_numbers() -> None:
    assert samples(busy_worker(2).exposition().decode()) != samples(busy_worker(3).exposition().decode())


def test_values_that_age_are_taken_when_asked() -> None:
    metrics = Metrics()
    ages = iter([1.5, 2.5])
    metrics.before_exposition(lambda: metrics.replica(version=1, stale_seconds=next(ages), complete=True))
    for expected in (1.5, 2.5):
        assert samples(metrics.exposition().decode())["routebook_replica_stale_seconds", ()] == expected


def test_merged_counters_and_histograms_add_up_and_gauges_make_sense() -> None:
    merged = samples(merge_expositions(busy_worker(times).exposition().decode() for times in (2, 3)))
    assert merged["routebook_lookups_total", (("port", "http"), ("result", "found"))] == 5
    assert merged["routebook_store_call_seconds_count", (("script", "touch_broker"),)] == 5
    assert merged["routebook_store_call_seconds_bucket", (("le", "+Inf"), ("script", "touch_broker"))] == 5
    assert merged["routebook_watchers", ()] == 5
    assert merged["routebook_topics", ()] == 11
    assert merged["routebook_replica_version", ()] == 102
    assert merged["routebook_replica_stale_seconds", ()] == 3
    assert merged["routebook_replica_complete", ()] == 0
    assert (merged["routebook_leader", ()], merged["routebook_leader_token", ()]) == (1, 42)
    assert merged["routebook_expiry_held", ()] == 1
    assert merged["routebook_build_info", (("version", __version__),)] == 1


def test_merging_one_changes_nothing() -> None:
    text = busy_worker(2).exposition().decode()
    assert samples(merge_expositions([text])) == samples(text)


def test_awkward_labels_survive_merging() -> None:
    metrics = Metrics()
    metrics.http_request("GET", 'a "quoted"\\ route\nin two lines', 200, 0.1)
    text = metrics.exposition().decode()
    assert samples(merge_expositions([text])) == samples(text)
