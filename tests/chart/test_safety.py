"""Pods meet the restricted pod security level and stop in order, and each port is open only to its intended peers."""

from pathlib import Path
from typing import Any

import pytest

from tests.chart.objects import (
    Object,
    PodTemplate,
    main_container,
    of_kind,
    pod_templates,
    selected_pods,
    single,
    worker_deployment,
    worker_template,
)
from tests.chart.rendering import VALUE_SETS, render, value_set

ALLOWED_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}


@pytest.fixture(params=VALUE_SETS, ids=lambda path: path.stem)
def objects(request: pytest.FixtureRequest) -> list[Object]:
    path: Path = request.param
    return render(value_set(path))


def test_every_pod_meets_the_restricted_level(objects: list[Object]) -> None:
    for template in pod_templates(objects):
        security = template.spec["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not template.spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        for volume in template.spec.get("volumes", []):
            assert set(volume) - {"name"} <= ALLOWED_VOLUMES
        for container in template.containers:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert not any("hostPort" in port for port in container.get("ports", []))


def test_no_pod_can_write_to_its_image_or_call_the_kubernetes_api(objects: list[Object]) -> None:
    for template in pod_templates(objects):
        assert template.spec["automountServiceAccountToken"] is False
        # The variables of a Service called routebook would be read as settings.
        assert template.spec["enableServiceLinks"] is False
        for container in own_containers(template):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert any(mount["mountPath"] == "/tmp" for mount in container["volumeMounts"])


def own_containers(template: PodTemplate) -> list[Object]:
    return [found for found in template.containers if found["name"] in ("routebook", "store", "test", "pipeline")]


def test_every_container_declares_its_resources(objects: list[Object]) -> None:
    for template in pod_templates(objects):
        for container in own_containers(template):
            resources = container["resources"]
            assert {"cpu", "memory"} <= resources["requests"].keys()
            assert template.owner.startswith("Deployment") or "memory" in resources["limits"]


def test_every_image_has_a_fixed_tag(objects: list[Object]) -> None:
    for template in pod_templates(objects):
        for container in template.containers:
            _, colon, tag = container["image"].rpartition("/")[2].partition(":")
            assert colon, container["image"]
            assert tag not in ("", "latest"), container["image"]


def test_the_grace_period_covers_a_regular_stop(objects: list[Object]) -> None:
    spec = worker_template(objects).spec
    container = main_container(objects)
    pre_stop_s = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain_ms = int(
        single(objects, "ConfigMap", container["envFrom"][0]["configMapRef"]["name"])["data"]["ROUTEBOOK_DRAIN_MS"]
    )
    # 15 s for the rest of a stop: closing connections, ending background work, releasing the lease.
    assert spec["terminationGracePeriodSeconds"] >= pre_stop_s + drain_ms / 1000 + 15


def test_an_old_worker_stops_only_when_its_replacement_is_ready(objects: list[Object]) -> None:
    strategy = worker_deployment(objects)["spec"]["strategy"]
    assert strategy == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }


def test_probes_use_livez_and_readyz(objects: list[Object]) -> None:
    container = main_container(objects)
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {
        "startupProbe": {"path": "/livez", "port": "admin"},
        "livenessProbe": {"path": "/livez", "port": "admin"},
        "readinessProbe": {"path": "/readyz", "port": "admin"},
    }


def test_the_admin_port_has_a_headless_service_of_its_own(objects: list[Object]) -> None:
    for found in of_kind(objects, "Service"):
        targets = [port["targetPort"] for port in found["spec"]["ports"]]
        assert targets == ["admin"] or "admin" not in targets
        if targets == ["admin"]:
            assert found["spec"]["clusterIP"] == "None"
            assert found["spec"]["publishNotReadyAddresses"] is True


def test_no_service_selects_the_pods_of_helm_test_or_the_pipeline(objects: list[Object]) -> None:
    selected = [
        template.kind
        for found in of_kind(objects, "Service")
        for template in selected_pods(objects, found["spec"]["selector"])
    ]
    assert set(selected) <= {"Deployment", "StatefulSet"}


def test_the_store_persists_data_and_never_evicts() -> None:
    text = single(render(), "ConfigMap", "-store")["data"]["store.conf"]
    lines = dict(line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    assert lines["appendonly"] == "yes"
    assert lines["appendfsync"] == "everysec"
    assert lines["maxmemory-policy"] == "noeviction"
    assert lines["dir"] == "/data"
    (container,) = single(render(), "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert {"name": "data", "mountPath": "/data"} in container["volumeMounts"]


def test_claims_are_kept_when_the_release_is_removed() -> None:
    stateful = single(render(), "StatefulSet")["spec"]
    assert stateful["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    claims = of_kind(render({"pipeline": {"enabled": True}}), "PersistentVolumeClaim")
    assert len(claims) == 2
    assert all(found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for found in claims)


def policy(values: dict[str, Any], ending: str = "") -> Any:
    return single(render(values), "NetworkPolicy", ending or "routebook")["spec"]


def test_only_this_release_reaches_the_store() -> None:
    objects = render({"pipeline": {"enabled": True, "session": {"enabled": True}}})
    spec = single(objects, "NetworkPolicy", "-store")["spec"]
    (rule,) = spec["ingress"]
    sources = [selected_pods(objects, peer["podSelector"]["matchLabels"]) for peer in rule["from"]]
    assert [[template.kind for template in found] for found in sources] == [
        ["Deployment"],
        ["CronJob"],
        ["Deployment"],
    ]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in spec


def test_the_admin_port_is_open_only_to_admin_from() -> None:
    spec = policy({})
    public, admin = spec["ingress"]
    assert "from" not in public
    assert [port["port"] for port in admin["ports"]] == ["admin"]
    assert admin["from"] == [{"namespaceSelector": {}}]
    # In a NetworkPolicy an empty list of peers would allow all.
    closed = policy({"networkPolicy": {"adminFrom": []}})
    assert [port["port"] for rule in closed["ingress"] for port in rule["ports"]] == ["remoting", "http"]


def test_helm_test_is_allowed_when_public_from_is_set() -> None:
    named = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    objects = render({"networkPolicy": {"publicFrom": named}})
    own_test, *others = single(objects, "NetworkPolicy", "routebook")["spec"]["ingress"][0]["from"]
    assert [found.kind for found in selected_pods(objects, own_test["podSelector"]["matchLabels"])] == ["Pod"]
    assert others == named


def test_egress_is_unrestricted_unless_rules_are_given() -> None:
    """Workers dial brokers, which may be anywhere."""
    assert policy({})["policyTypes"] == ["Ingress"]
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
    named = policy({"networkPolicy": {"egress": [rule]}})
    assert named["policyTypes"] == ["Ingress", "Egress"]
    names, store, own = named["egress"]
    assert [port["port"] for port in names["ports"]] == [53, 53]
    assert [port["port"] for port in store["ports"]] == ["redis"]
    assert own == rule
