"""What the chart makes of the cluster it is installed into: kinds of an operator, and what Helm then says."""

from pathlib import Path
from typing import Any

import pytest

from tests.chart.api_server import OPERATOR, ApiServer
from tests.chart.objects import called
from tests.chart.rendering import render
from tests.chart.tools import HELMS

MONITORING = "monitoring.coreos.com/v1"
SERVICE_MONITOR = {"metrics": {"serviceMonitor": {"enabled": True}}}


@pytest.fixture(params=HELMS, ids=lambda helm: helm.name)
def helm(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def of_operator(objects: list[dict[str, Any]]) -> list[str]:
    return sorted(called(found) for found in objects if found["apiVersion"] == MONITORING)


def test_a_cluster_without_the_operator_takes_the_defaults(helm: Path, tmp_path: Path) -> None:
    with ApiServer.running(tmp_path) as server:
        assert of_operator(server.objects(helm, {})) == []
        said = server.install(helm, {"metrics": {"prometheusRule": {"enabled": True}}})
        assert said.code != 0, "it knows no such kind, so this proves nothing"
        assert "PrometheusRule" in said.errors


def test_one_with_it_gets_alarms_and_a_monitor_unasked(helm: Path, tmp_path: Path) -> None:
    with ApiServer.running(tmp_path, kinds=OPERATOR) as server:
        assert of_operator(server.objects(helm, {})) == ["PodMonitor/rb-routebook", "PrometheusRule/rb-routebook"]
        off = {"podMonitor": {"enabled": False}, "prometheusRule": {"enabled": False}}
        assert of_operator(server.objects(helm, {"metrics": off})) == []


def test_a_service_monitor_is_made_in_place_of_the_other(helm: Path, tmp_path: Path) -> None:
    with ApiServer.running(tmp_path, kinds=OPERATOR) as server:
        made = of_operator(server.objects(helm, SERVICE_MONITOR))
        assert made == ["PrometheusRule/rb-routebook", "ServiceMonitor/rb-routebook"]


def test_a_rendering_without_a_cluster_makes_what_it_is_told(helm: Path) -> None:
    assert of_operator(render(helm=helm)) == []
    told = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    assert of_operator(render({"metrics": told}, helm=helm)) == [
        "PodMonitor/rb-routebook",
        "PrometheusRule/rb-routebook",
    ]


@pytest.mark.parametrize(
    ("values", "kinds", "said"),
    [
        ({}, {}, "no rules and no monitor are made"),
        ({}, OPERATOR, "PrometheusRule, PodMonitor. A Prometheus that selects by labels"),
        ({"metrics": {"labels": {"release": "stack"}}}, OPERATOR, "PrometheusRule, PodMonitor with the labels"),
        (SERVICE_MONITOR, OPERATOR, "PrometheusRule, ServiceMonitor."),
    ],
    ids=["none", "unlabelled", "labelled", "service-monitor"],
)
def test_the_notes_say_whether_anybody_will_be_woken(
    values: dict[str, Any], kinds: dict[str, set[str]], said: str, helm: Path, tmp_path: Path
) -> None:
    with ApiServer.running(tmp_path, kinds=kinds) as server:
        _, _, notes = server.install(helm, values).text.partition("NOTES:")
        assert said in notes
        assert "ConfigMap rb-routebook-dashboard" in notes
