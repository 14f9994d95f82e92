"""A real Prometheus scrapes real workers, with the rules of the chart: what it makes of them an operator gets."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.architecture.sources import ROOT
from tests.metrics.dashboard_file import queries
from tests.metrics.promtool import needs_prometheus
from tests.metrics.rules_file import ALERTS, read_alerts
from tests.process.running import Running

pytestmark = [pytest.mark.slow, needs_prometheus, pytest.mark.xdist_group("metrics")]

START_SECONDS = 30.0

QUIET = {
    # What these show did not happen here, or not on the worker that the query is about.
    "annotation Alerts",
    "Connections refused or cut B",
    "Connections refused or cut C",
    "Memory B",
}
"""Queries that may be answered with nothing."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    url: str

    def get(self, path: str, **params: str) -> Any:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=params, timeout=10, trust_env=False)
        said = answer.json()
        assert said["status"] == "success", said
        return said["data"]

    def query(self, expr: str) -> list[Any]:
        found: list[Any] = self.get("query", query=expr)["result"]
        return found


@pytest.fixture(scope="module")
def prometheus(
    busy: Running, busy_processes: Running, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    targets = [
        {"targets": [service.admin.removeprefix("http://")], "labels": {"namespace": namespace}}
        for service, namespace in ((busy, "one"), (busy_processes, "two"))
    ]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "names", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
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
    """Several of each target: a rate needs two."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            if len(prometheus.query("count_over_time(routebook_build_info[1m]) >= 4")) == 2:
                return
        except (httpx.HTTPError, ValueError):
            pass  # it is not up yet
        time.sleep(0.3)


def test_both_targets_are_taken_whole(prometheus: Prometheus) -> None:
    targets = prometheus.get("targets")["activeTargets"]
    assert [(one["health"], one["lastError"]) for one in targets] == [("up", "")] * 2
    assert len(prometheus.query("scrape_samples_scraped > 150")) == 2


@pytest.mark.parametrize(("where", "expr"), list(queries()), ids=[where for where, _ in queries()])
def test_every_query_of_the_dashboard_is_answered(prometheus: Prometheus, where: str, expr: str) -> None:
    found = prometheus.query(expr)
    assert found or where in QUIET


def test_the_numbers_are_those_of_what_was_done(prometheus: Prometheus) -> None:
    def number(expr: str) -> float:
        ((_, text),) = [one["value"] for one in prometheus.query(expr)]
        return float(text)

    assert number('sum(routebook_registrations_total{namespace="one"})') == 6
    assert number('sum(routebook_registrations_total{namespace="two"})') == 6
    assert number('max(routebook_brokers{namespace="two"})') == 1
    assert number('sum(routebook_lookups_total{namespace="two", port="http", result="found"})') == 150
    assert number('routebook_leader{namespace="two"}') == 1
    assert number('routebook_workers{namespace="two"}') == 2


def test_all_rules_are_loaded_and_evaluated_and_healthy_services_wake_nobody(prometheus: Prometheus) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == {alert.name for alert in read_alerts()}
        if {rule["health"] for rule in rules} == {"ok"} or time.monotonic() > deadline:
            break
        time.sleep(0.3)
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
    assert [rule["name"] for rule in rules if rule["state"] != "inactive"] == []


def test_texts_of_rules_read_by_the_tests_are_those_prometheus_reads(prometheus: Prometheus) -> None:
    loaded = {rule["name"]: rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]}
    for alert in read_alerts():
        rule = loaded[alert.name]
        assert rule["annotations"] == alert.annotations
        assert rule["labels"] == alert.labels
        assert (ROOT / rule["annotations"]["runbook_url"].partition("#")[0]).is_file()
