"""A real Prometheus scrapes real workers and evaluates the chart's rules and the dashboard's queries."""

import asyncio
import json
import math
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.metrics.dashboard_file import choices, queries
from tests.metrics.promtool import needs_prometheus, needs_promtool, promtool
from tests.metrics.rules_file import ALERTS, read_alerts
from tests.metrics.traffic import make_traffic, start_service
from tests.runtime.running import Running
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, needs_prometheus, pytest.mark.xdist_group("metrics")]

START_SECONDS = 30.0

WITHOUT_DATA = {
    "annotation Alerts": {
        'ALERTS{alertname="RoutebookAbsent",alertstate="firing",severity="critical",job="names"}': "1x60",
        'ALERTS{alertname="RoutebookFeedLag",alertstate="pending",severity="warning",job="names"}': "1x60",
    },
    "Connections refused or cut B": {'routebook_remoting_violations_total{job="names",reason="header"}': "0+5x60"},
    "Connections refused or cut C": {'routebook_remoting_closed_total{job="names",reason="idle"}': "0+5x60"},
    "Memory B": {
        'routebook_memory_limit_bytes{job="names",instance="a"}': "1073741824x60",
        'routebook_memory_limit_bytes{job="names",instance="b"}': "0x60",
    },
}
"""Queries that may return nothing here, because the event does not occur in this test. For each of them, series with a
sample every five seconds for which it must return something."""
EXPECTED = {
    "annotation Alerts": [('{alertname="RoutebookAbsent",severity="critical"}', 1)],
    "Connections refused or cut B": [('{reason="header"}', 1)],
    "Connections refused or cut C": [('{reason="idle"}', 1)],
    "Memory B": [("{}", 1073741824)],
}


@dataclass(frozen=True, slots=True)
class Prometheus:
    url: str

    def get(self, path: str, **params: str) -> Any:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=params, timeout=10, trust_env=False)
        body = answer.json()
        assert body["status"] == "success", body
        return body["data"]

    def query(self, expr: str) -> list[Any]:
        found: list[Any] = self.get("query", query=expr)["result"]
        return found


@pytest.fixture(scope="module")
def loaded_worker(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A worker with traffic while it is scraped, because a rate needs events between two scrapes."""
    with (
        start_service(store_url, tmp_path_factory.mktemp("three"), workers=1) as service,
        ThreadPoolExecutor(1) as thread,
    ):
        stop = threading.Event()

        def repeat_traffic() -> None:
            while not stop.is_set():
                asyncio.run(make_traffic(service))

        traffic = thread.submit(repeat_traffic)
        try:
            yield service
        finally:
            stop.set()
        traffic.result()


@pytest.fixture(scope="module")
def prometheus(
    used_worker: Running, used_processes: Running, loaded_worker: Running, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    targets = [
        {"targets": [service.admin.removeprefix("http://")], "labels": {"namespace": namespace}}
        for service, namespace in ((used_worker, "one"), (used_processes, "two"), (loaded_worker, "three"))
    ]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "names", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        shutil.which("prometheus") or "",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        found = Prometheus(f"http://{address}")
        _wait_for_scrapes(found, process, folder / "log")
        yield found
    finally:
        process.terminate()
        process.wait(20)


def _wait_for_scrapes(prometheus: Prometheus, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Waits for several scrapes of each target; a rate needs two."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            if len(prometheus.query("count_over_time(routebook_build_info[1m]) >= 4")) == 3:
                return
        except (httpx.HTTPError, ValueError):
            pass  # Prometheus is still starting
        time.sleep(0.3)


def test_all_targets_are_scraped_completely(prometheus: Prometheus) -> None:
    targets = prometheus.get("targets")["activeTargets"]
    assert [(target["health"], target["lastError"]) for target in targets] == [("up", "")] * 3
    assert len(prometheus.query("scrape_samples_scraped > 150")) == 3


@pytest.mark.parametrize(("where", "expr"), list(queries()), ids=[where for where, _ in queries()])
def test_every_dashboard_query_returns_data(prometheus: Prometheus, where: str, expr: str) -> None:
    # A quantile without samples is NaN.
    numbers = [float(series["value"][1]) for series in prometheus.query(expr)]
    assert any(not math.isnan(number) for number in numbers) or where in WITHOUT_DATA


@needs_promtool
@pytest.mark.parametrize("where", WITHOUT_DATA)
def test_the_remaining_queries_return_data_when_the_event_occurs(where: str, tmp_path: Path) -> None:
    (expr,) = [expr for name, expr in queries() if name == where]
    samples = [{"labels": labels, "value": value} for labels, value in EXPECTED[where]]
    unit_test = {
        "interval": "5s",
        "input_series": [{"series": name, "values": values} for name, values in WITHOUT_DATA[where].items()],
        "promql_expr_test": [{"expr": expr, "eval_time": "4m", "exp_samples": samples}],
    }
    path = tmp_path / "tests.yaml"
    path.write_text(json.dumps({"evaluation_interval": "5s", "tests": [unit_test]}))
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboards_variables_offer_the_existing_services(prometheus: Prometheus) -> None:
    """Queries the values as Grafana does."""
    offered = {
        name: prometheus.get(f"label/{label}/values", **{"match[]": metric}) for name, metric, label in choices()
    }
    assert offered == {"namespace": ["one", "three", "two"], "job": ["names"]}


def test_scraped_numbers_match_the_traffic(prometheus: Prometheus) -> None:
    def number(expr: str) -> float:
        ((_, text),) = [series["value"] for series in prometheus.query(expr)]
        return float(text)

    assert number('sum(routebook_registrations_total{namespace="one"})') == 6
    assert number('sum(routebook_registrations_total{namespace="two"})') == 6
    assert number('max(routebook_brokers{namespace="two"})') == 1
    assert number('sum(routebook_lookups_total{namespace="two", port="http", result="found"})') == 150
    assert number('routebook_leader{namespace="two"}') == 1
    assert number('routebook_workers{namespace="two"}') == 2


def test_all_rules_are_evaluated_and_none_fires_for_healthy_services(prometheus: Prometheus) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == {alert.name for alert in read_alerts()}
        # Right after the start no scan for silent brokers has run between two scrapes yet.
        all_inactive = {(rule["health"], rule["state"]) for rule in rules} == {("ok", "inactive")}
        if all_inactive or time.monotonic() > deadline:
            break
        time.sleep(0.3)
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
    assert [rule["name"] for rule in rules if rule["state"] != "inactive"] == []


def test_read_alerts_agrees_with_prometheus(prometheus: Prometheus) -> None:
    loaded = {rule["name"]: rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]}
    for alert in read_alerts():
        rule = loaded[alert.name]
        assert rule["annotations"] == alert.annotations
        assert rule["labels"] == alert.labels
        assert rule["annotations"]["runbook_url"].startswith("https://")
