"""Counters match the traffic exactly: every event is counted once."""

import os
import signal
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.metrics.traffic import make_traffic, start_service
from tests.runtime.running import Running
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("metrics")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(service: Running) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(service.get_admin("/metrics").text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"routebook_{name}", frozenset(labels.items())]


def test_registrations_on_both_ports_are_counted(used_worker: Running) -> None:
    samples = scrape(used_worker)
    assert value(samples, "registrations_total", kind="changed") == 3
    assert value(samples, "registrations_total", kind="unchanged") == 3
    assert value(samples, "heartbeats_total") == 1


def test_refusals_are_counted_by_reason(used_worker: Running) -> None:
    samples = scrape(used_worker)
    assert value(samples, "requests_refused_total", port="http", reason="not_found") == 1
    assert value(samples, "requests_refused_total", port="http", reason="invalid") == 1
    assert value(samples, "requests_refused_total", port="remoting", reason="invalid") == 1
    assert value(samples, "requests_refused_total", port="remoting", reason="failed") == 0


def test_all_lookups_are_counted_and_a_sample_is_timed(used_worker: Running) -> None:
    samples = scrape(used_worker)
    for port in ("http", "remoting"):
        counted = value(samples, "lookups_total", port=port, result="found")
        timed = value(samples, "lookup_seconds_count", port=port)
        assert value(samples, "lookups_total", port=port, result="not_found") == 1
        assert 1 <= timed < counted
        assert value(samples, "lookup_seconds_sum", port=port) > 0
    assert value(samples, "loop_delay_seconds_count") > 10


def test_broker_requests_are_timed_by_name(used_worker: Running) -> None:
    samples = scrape(used_worker)
    assert value(samples, "remoting_request_seconds_count", request="REGISTER_BROKER") == 4
    assert value(samples, "remoting_request_seconds_count", request="UNREGISTER_BROKER") == 1


async def test_table_and_leader_metrics_are_present(used_worker: Running) -> None:
    assert value(scrape(used_worker), "leader") == 1
    assert value(scrape(used_worker), "brokers") == 1, "only broker-h is still registered"
    assert value(scrape(used_worker), "replica_digest") > 0
    assert value(scrape(used_worker), "feed_lag_seconds") == 0
    # A new leader measures the history at once, and then every minute.
    assert ("routebook_history_entries", frozenset()) in scrape(used_worker)


@pytest.mark.slow
async def test_sums_keep_the_counts_of_dead_processes(store_url: str, tmp_path: Path) -> None:
    with start_service(store_url, tmp_path, workers=2) as service:
        await make_traffic(service)
        before = _lookups(service)
        assert before > 150
        for pid in service.children("worker-process"):
            os.kill(pid, signal.SIGKILL)
        await until(lambda: value(scrape(service), "worker_restarts_total") == 2, timeout_s=60)
        assert _lookups(service) == before
        await until(lambda: value(scrape(service), "workers") == 2, timeout_s=60)
        assert _lookups(service) == before
        assert (value(scrape(service), "workers_wanted"), value(scrape(service), "workers_disagree")) == (2, 0)


def _lookups(service: Running) -> float:
    return sum(number for (name, _), number in scrape(service).items() if name == "routebook_lookups_total")
