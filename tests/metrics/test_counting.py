"""What happened is what is counted, each time once."""

import os
import signal
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.metrics.traffic import make_traffic, serving
from tests.runtime.running import Running
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("metrics")

Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


def of(service: Running) -> Found:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(service.ask_admin("/metrics").text)
        for sample in family.samples
    }


def value(found: Found, name: str, **labels: str) -> float:
    return found[f"routebook_{name}", frozenset(labels.items())]


def test_registrations_of_both_ports_are_counted_once(busy: Running) -> None:
    found = of(busy)
    assert value(found, "registrations_total", kind="changed") == 3
    assert value(found, "registrations_total", kind="unchanged") == 3
    assert value(found, "heartbeats_total") == 1


def test_refusals_are_counted_by_their_reason(busy: Running) -> None:
    found = of(busy)
    assert value(found, "requests_refused_total", port="http", reason="not_found") == 1
    assert value(found, "requests_refused_total", port="http", reason="invalid") == 1
    assert value(found, "requests_refused_total", port="remoting", reason="invalid") == 1
    assert value(found, "requests_refused_total", port="remoting", reason="failed") == 0


def test_lookups_are_all_counted_and_some_of_them_timed(busy: Running) -> None:
    found = of(busy)
    for port in ("http", "remoting"):
        counted = value(found, "lookups_total", port=port, result="found")
        timed = value(found, "lookup_seconds_count", port=port)
        assert value(found, "lookups_total", port=port, result="not_found") == 1
        assert 1 <= timed < counted
        assert value(found, "lookup_seconds_sum", port=port) > 0
    assert value(found, "loop_delay_seconds_count") > 10


def test_requests_of_brokers_are_timed_by_name(busy: Running) -> None:
    found = of(busy)
    assert value(found, "remoting_request_seconds_count", request="REGISTER_BROKER") == 4
    assert value(found, "remoting_request_seconds_count", request="UNREGISTER_BROKER") == 1


async def test_the_table_and_the_leader_are_shown(busy: Running) -> None:
    assert value(of(busy), "leader") == 1
    assert value(of(busy), "brokers") == 1, "broker-h is left"
    assert value(of(busy), "replica_digest") > 0
    assert value(of(busy), "feed_lag_seconds") == 0
    # The history is looked at as soon as a worker leads; what came later shows a minute after.
    assert ("routebook_history_entries", frozenset()) in of(busy)


@pytest.mark.slow
async def test_a_process_that_dies_takes_nothing_out_of_the_sums(store_url: str, tmp_path: Path) -> None:
    with serving(store_url, tmp_path, workers=2) as service:
        await make_traffic(service)
        before = _lookups(service)
        assert before > 150
        for pid in service.children("worker-process"):
            os.kill(pid, signal.SIGKILL)
        await until(lambda: value(of(service), "worker_restarts_total") == 2, timeout_s=60)
        assert _lookups(service) == before
        await until(lambda: value(of(service), "workers") == 2, timeout_s=60)
        assert _lookups(service) == before
        assert (value(of(service), "workers_wanted"), value(of(service), "workers_disagree")) == (2, 0)


def _lookups(service: Running) -> float:
    return sum(number for (name, _), number in of(service).items() if name == "routebook_lookups_total")
