"""Merging the metrics of several workers."""

import pytest

from routebook import __version__
from routebook.observability.exposition import ExpositionMerger, WorkerExposition
from routebook.observability.metrics import Metrics
from tests.observability.test_metrics import busy_worker, figures, samples

FOUND = ("routebook_lookups_total", (("port", "http"), ("result", "found")))


def seen(source: int, metrics: Metrics, generation: int = 0) -> WorkerExposition:
    return WorkerExposition(str(source), generation, metrics.exposition().decode())


def merged(*workers: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return samples(ExpositionMerger().merge(seen(number, worker) for number, worker in enumerate(workers)))


def looked_up(times: int) -> Metrics:
    metrics = Metrics()
    for _ in range(times):
        metrics.lookup("http", "found")
    return metrics


def test_counters_and_histograms_add_up_and_gauges_make_sense() -> None:
    values = merged(busy_worker(2), busy_worker(3))
    assert values[FOUND] == 5
    assert values["routebook_store_call_seconds_count", (("script", "touch_broker"),)] == 5
    assert values["routebook_store_call_seconds_bucket", (("le", "+Inf"), ("script", "touch_broker"))] == 5
    assert values["routebook_watchers", ()] == 5
    assert values["routebook_topics", ()] == 11
    assert values["routebook_replica_version", ()] == 102
    assert values["routebook_replica_stale_seconds", ()] == 3
    assert values["routebook_replica_complete", ()] == 0
    assert (values["routebook_leader", ()], values["routebook_leader_token", ()]) == (1, 42)
    assert values["routebook_expiry_held", ()] == 1
    assert values["routebook_build_info", (("version", __version__),)] == 1


def test_what_each_worker_holds_adds_up() -> None:
    workers = [Metrics(), Metrics()]
    for count, metrics in enumerate(workers, 1):
        metrics.sessions(count)
        metrics.connections("remoting", 10 * count)
        metrics.limits(connections=100, memory_bytes=1000)
    values = merged(*workers)
    assert values["routebook_sessions", ()] == 3
    assert values["routebook_connections", (("port", "remoting"),)] == 30
    assert values["routebook_connections_limit", ()] == 200
    assert values["routebook_memory_limit_bytes", ()] == 1000, "one limit for all processes of a container"


def test_one_worker_alone_is_passed_through() -> None:
    alone, together = samples(busy_worker(2).exposition().decode()), merged(busy_worker(2))
    per_process = {key for key in alone if key[0].startswith("process_")}
    assert {key: together[key] for key in alone.keys() - per_process} == {
        key: alone[key] for key in alone.keys() - per_process
    }


def test_labels_with_special_characters_survive() -> None:
    metrics = Metrics()
    metrics.http_request("GET", 'a "quoted"\\ route\nin two lines', 200, 0.1)
    alone = samples(metrics.exposition().decode())
    assert {key for key in alone if "http_requests_total" in key[0]} <= merged(metrics).keys()


def test_a_sum_does_not_fall_when_a_worker_dies() -> None:
    """A fall would look like a restart, and the counts of the other workers would be counted again."""
    merging = ExpositionMerger()
    first, second = looked_up(1000), looked_up(500)
    assert samples(merging.merge([seen(1, first), seen(2, second)]))[FOUND] == 1500
    assert samples(merging.merge([seen(1, first)]))[FOUND] == 1500, "it does not answer"
    restarted = looked_up(3)
    assert samples(merging.merge([seen(1, first), seen(2, restarted, generation=1)]))[FOUND] == 1503
    assert samples(merging.merge([seen(1, first), seen(2, looked_up(4), generation=1)]))[FOUND] == 1504


def test_gauges_of_a_worker_that_does_not_answer_are_omitted() -> None:
    merging = ExpositionMerger()
    stale, current = Metrics(), Metrics()
    stale.replica(figures(stale_seconds=60))
    current.replica(figures())
    merging.merge([seen(1, stale), seen(2, current)])
    assert samples(merging.merge([seen(2, current)]))["routebook_replica_stale_seconds", ()] == 0


@pytest.mark.parametrize(
    ("tables", "spread", "disagree"),
    [
        ([(7, "a"), (7, "a")], 0, 0),
        ([(7, "a"), (9, "b")], 2, 0),
        ([(7, "a"), (7, "b")], 0, 1),
        ([(7, "a"), (9, "b"), (9, "c")], 2, 1),
    ],
)
def test_disagreeing_workers_are_detected(tables: list[tuple[int, str]], spread: int, disagree: int) -> None:
    workers = [Metrics() for _ in tables]
    for metrics, (version, letter) in zip(workers, tables, strict=True):
        metrics.replica(figures(version=version, digest=letter * 32))
    values = merged(*workers)
    assert values["routebook_workers_version_spread", ()] == spread
    assert values["routebook_workers_disagree", ()] == disagree


def test_a_worker_that_has_no_table_yet_does_not_disagree() -> None:
    loading, ready = Metrics(), Metrics()
    loading.replica(figures(version=0, complete=False))
    ready.replica(figures(version=50, digest="a" * 32))
    assert merged(loading, ready)["routebook_workers_version_spread", ()] == 0
