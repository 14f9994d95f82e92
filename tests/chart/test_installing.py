"""What the chart makes of the cluster it is installed into: kinds of an operator, and what Helm then says."""

from pathlib import Path
from typing import Any

import pytest

from tests.chart.api_server import OPERATOR, ApiServer, next_commands
from tests.chart.objects import called, one
from tests.chart.rendering import NAMESPACE, render
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


SCALED = {"enabled": True, "minReplicas": 4, "maxReplicas": 12}


def deployment(replicas: int, name: str = "rb-routebook") -> dict[str, Any]:
    """As this release's own would be, or Helm would not touch it."""
    metadata = {
        "name": name,
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "rb", "meta.helm.sh/release-namespace": NAMESPACE},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas}}


@pytest.mark.parametrize(
    ("live", "rendered"),
    [
        ([], 4),
        ([deployment(7)], 7),
        ([deployment(2)], 4),
        # Scaled to nothing the autoscaler would not look at it again.
        ([deployment(0)], 4),
        ([deployment(9, name="another")], 4),
    ],
    ids=["new", "seven", "two", "none", "another"],
)
def test_workers_that_run_are_not_taken_away_for_the_autoscaler(
    live: list[dict[str, Any]], rendered: int, helm: Path, tmp_path: Path
) -> None:
    with ApiServer.running(tmp_path, live) as server:
        made = one(server.objects(helm, {"autoscaling": SCALED}), "Deployment")
        assert made["spec"]["replicas"] == rendered
        # Nobody but the autoscaler is asked when it is off, and a number of one's own is that number.
        assert one(server.objects(helm, {"replicas": 5}), "Deployment")["spec"]["replicas"] == 5


def test_the_number_may_be_left_to_the_autoscaler_alone(helm: Path) -> None:
    made = one(render({"autoscaling": {**SCALED, "keepReplicas": False}}, helm=helm), "Deployment")
    assert "replicas" not in made["spec"]


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


ROLLOUT = "kubectl --namespace fleet rollout status deployment/rb-routebook"
HELM_TEST = "helm --namespace fleet test rb"
EXEC = "kubectl --namespace fleet exec deployment/rb-routebook --"


@pytest.mark.parametrize(
    ("tls", "commands"),
    [
        ({}, [ROLLOUT, HELM_TEST, f"{EXEC} routebook status"]),
        ({"mode": "enforcing", "existingSecret": "a"}, [ROLLOUT, HELM_TEST, f"{EXEC} healthcheck"]),
        (
            {"mode": "enforcing", "existingSecret": "a", "clientAuth": "require", "trustSecret": "b"},
            [
                ROLLOUT,
                "kubectl --namespace fleet get endpointslices --selector kubernetes.io/service-name=rb-routebook",
                f"{EXEC} healthcheck",
            ],
        ),
    ],
    ids=["plain", "enforcing", "clients-too"],
)
def test_the_notes_name_three_next_commands(
    tls: dict[str, str], commands: list[str], helm: Path, tmp_path: Path
) -> None:
    """Such as work: tests/chart/test_running.py has a worker that knows only clients with a certificate."""
    with ApiServer.running(tmp_path) as server:
        assert next_commands(server.install(helm, {"tls": tls}).text) == commands
