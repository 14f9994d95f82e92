"""How the chart adapts to the cluster it is installed into: the operator's kinds, running workers, the notes."""

from pathlib import Path
from typing import Any

import pytest

from tests.chart.api_server import OPERATOR, ApiServer, next_commands
from tests.chart.objects import object_name, single
from tests.chart.rendering import NAMESPACE, render
from tests.chart.tools import HELMS

MONITORING = "monitoring.coreos.com/v1"
SERVICE_MONITOR = {"metrics": {"serviceMonitor": {"enabled": True}}}


@pytest.fixture(params=HELMS, ids=lambda helm: helm.name)
def helm(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def operator_objects(objects: list[dict[str, Any]]) -> list[str]:
    return sorted(object_name(found) for found in objects if found["apiVersion"] == MONITORING)


def test_the_defaults_install_on_a_cluster_without_the_operator(helm: Path, tmp_path: Path) -> None:
    with ApiServer.running(tmp_path) as server:
        assert operator_objects(server.objects(helm, {})) == []
        result = server.install(helm, {"metrics": {"prometheusRule": {"enabled": True}}})
        assert result.code != 0, "the fake server must not know this kind, or the test proves nothing"
        assert "PrometheusRule" in result.errors


def test_a_cluster_with_the_operator_gets_rules_and_a_monitor_by_default(helm: Path, tmp_path: Path) -> None:
    with ApiServer.running(tmp_path, kinds=OPERATOR) as server:
        assert operator_objects(server.objects(helm, {})) == ["PodMonitor/rb-routebook", "PrometheusRule/rb-routebook"]
        off = {"podMonitor": {"enabled": False}, "prometheusRule": {"enabled": False}}
        assert operator_objects(server.objects(helm, {"metrics": off})) == []


def test_a_service_monitor_replaces_the_pod_monitor(helm: Path, tmp_path: Path) -> None:
    with ApiServer.running(tmp_path, kinds=OPERATOR) as server:
        created = operator_objects(server.objects(helm, SERVICE_MONITOR))
        assert created == ["PrometheusRule/rb-routebook", "ServiceMonitor/rb-routebook"]


def test_rendering_without_a_cluster_creates_only_what_is_enabled_explicitly(helm: Path) -> None:
    assert operator_objects(render(helm=helm)) == []
    enabled = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    assert operator_objects(render({"metrics": enabled}, helm=helm)) == [
        "PodMonitor/rb-routebook",
        "PrometheusRule/rb-routebook",
    ]


SCALED = {"enabled": True, "minReplicas": 4, "maxReplicas": 12}


def deployment(replicas: int, name: str = "rb-routebook") -> dict[str, Any]:
    """Carries the release's annotations; without them Helm would refuse to change it."""
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
        # An autoscaler ignores a Deployment that is scaled to zero.
        ([deployment(0)], 4),
        ([deployment(9, name="another")], 4),
    ],
    ids=["new", "seven", "two", "none", "another"],
)
def test_enabling_the_autoscaler_keeps_the_running_workers(
    live: list[dict[str, Any]], rendered: int, helm: Path, tmp_path: Path
) -> None:
    with ApiServer.running(tmp_path, live) as server:
        created = single(server.objects(helm, {"autoscaling": SCALED}), "Deployment")
        assert created["spec"]["replicas"] == rendered
        # Without the autoscaler the configured number applies, whatever runs now.
        assert single(server.objects(helm, {"replicas": 5}), "Deployment")["spec"]["replicas"] == 5


def test_the_number_of_workers_can_be_left_to_the_autoscaler(helm: Path) -> None:
    created = single(render({"autoscaling": {**SCALED, "keepReplicas": False}}, helm=helm), "Deployment")
    assert "replicas" not in created["spec"]


@pytest.mark.parametrize(
    ("values", "kinds", "text"),
    [
        ({}, {}, "no rules and no monitor were created"),
        ({}, OPERATOR, "PrometheusRule, PodMonitor. A Prometheus that selects by labels"),
        ({"metrics": {"labels": {"release": "stack"}}}, OPERATOR, "PrometheusRule, PodMonitor with the labels"),
        (SERVICE_MONITOR, OPERATOR, "PrometheusRule, ServiceMonitor."),
    ],
    ids=["none", "unlabelled", "labelled", "service-monitor"],
)
def test_the_notes_say_whether_alerts_work(
    values: dict[str, Any], kinds: dict[str, set[str]], text: str, helm: Path, tmp_path: Path
) -> None:
    with ApiServer.running(tmp_path, kinds=kinds) as server:
        _, _, notes = server.install(helm, values).text.partition("NOTES:")
        assert text in notes
        assert "ConfigMap rb-routebook-dashboard" in notes


TOKEN_SECRET = "rb-routebook-admin-token"


def test_an_upgrade_keeps_the_admin_token(helm: Path, tmp_path: Path) -> None:
    existing = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": TOKEN_SECRET,
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "rb", "meta.helm.sh/release-namespace": NAMESPACE},
        },
        "data": {"ROUTEBOOK_ADMIN_TOKEN": "a2VwdA=="},
    }
    with ApiServer.running(tmp_path, objects=[existing]) as server:
        assert single(server.objects(helm, {}), "Secret", TOKEN_SECRET)["data"] == existing["data"]
    with ApiServer.running(tmp_path) as server:
        made = [single(server.objects(helm, {}), "Secret", TOKEN_SECRET)["data"] for _ in range(2)]
        assert made[0] != made[1]


def test_the_notes_say_how_to_read_the_admin_token(helm: Path, tmp_path: Path) -> None:
    command = f"kubectl --namespace fleet get secret {TOKEN_SECRET} --output jsonpath='{{.data.ROUTEBOOK_ADMIN_TOKEN}}'"
    with ApiServer.running(tmp_path) as server:
        assert f"{command} | base64 --decode" in server.install(helm, {}).text
        off = server.install(helm, {"adminToken": {"create": False}}).text
        assert "administrative HTTP requests are refused" in off
        assert TOKEN_SECRET not in off


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
def test_the_notes_suggest_three_commands(tls: dict[str, str], commands: list[str], helm: Path, tmp_path: Path) -> None:
    """test_running.py checks that they work, also on a worker that requires client certificates."""
    with ApiServer.running(tmp_path) as server:
        assert next_commands(server.install(helm, {"tls": tls}).text) == commands
