"""Pods run under the restricted pod-security level, stop in order, and ports are open to whom they are meant for."""

from pathlib import Path
from typing import Any

import pytest

from tests.chart.objects import Object, PodTemplate, main_container, of_kind, one, selected, templates, worker
from tests.chart.rendering import VALUE_SETS, render, value_set

ALLOWED_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}


@pytest.fixture(params=VALUE_SETS, ids=lambda path: path.stem)
def objects(request: pytest.FixtureRequest) -> list[Object]:
    path: Path = request.param
    return render(value_set(path))


def test_every_pod_is_restricted(objects: list[Object]) -> None:
    for template in templates(objects):
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


def test_no_pod_can_write_to_its_image_or_speak_to_the_cluster(objects: list[Object]) -> None:
    for template in templates(objects):
        assert template.spec["automountServiceAccountToken"] is False
        # Variables of Services called routebook would be taken for settings.
        assert template.spec["enableServiceLinks"] is False
        for container in own(template):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert any(mount["mountPath"] == "/tmp" for mount in container["volumeMounts"])


def own(template: PodTemplate) -> list[Object]:
    return [found for found in template.containers if found["name"] in ("routebook", "store", "test", "pipeline")]


def test_every_container_says_what_it_needs(objects: list[Object]) -> None:
    for template in templates(objects):
        for container in own(template):
            resources = container["resources"]
            assert {"cpu", "memory"} <= resources["requests"].keys()
            assert template.owner.startswith("Deployment") or "memory" in resources["limits"]


def test_no_image_is_whatever_is_newest(objects: list[Object]) -> None:
    for template in templates(objects):
        for container in template.containers:
            _, colon, tag = container["image"].rpartition("/")[2].partition(":")
            assert colon, container["image"]
            assert tag not in ("", "latest"), container["image"]


def test_a_pod_is_not_killed_before_it_has_stopped(objects: list[Object]) -> None:
    spec = worker(objects).spec
    container = main_container(objects)
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = int(
        one(objects, "ConfigMap", container["envFrom"][0]["configMapRef"]["name"])["data"]["ROUTEBOOK_DRAIN_MS"]
    )
    # What a stop may take after the drain: closing connections, background work, the store's farewell.
    assert spec["terminationGracePeriodSeconds"] >= pause + drain / 1000 + 15


def test_a_worker_goes_only_when_the_next_one_is_ready(objects: list[Object]) -> None:
    deployment = one(objects, "Deployment")
    assert deployment["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }


def test_probes_follow_the_contract_and_never_look_at_the_store(objects: list[Object]) -> None:
    container = main_container(objects)
    asked = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {
        "startupProbe": {"path": "/livez", "port": "admin"},
        "livenessProbe": {"path": "/livez", "port": "admin"},
        "readinessProbe": {"path": "/readyz", "port": "admin"},
    }


def test_the_admin_port_is_in_no_service_that_has_another(objects: list[Object]) -> None:
    for found in of_kind(objects, "Service"):
        targets = [port["targetPort"] for port in found["spec"]["ports"]]
        assert targets == ["admin"] or "admin" not in targets
        if targets == ["admin"]:
            assert found["spec"]["clusterIP"] == "None"
            assert found["spec"]["publishNotReadyAddresses"] is True


def test_nobody_who_runs_once_is_sent_anybody(objects: list[Object]) -> None:
    """Pods of `helm test` and of the pipeline match no Service."""
    reached = [
        template.kind
        for found in of_kind(objects, "Service")
        for template in selected(objects, found["spec"]["selector"])
    ]
    assert set(reached) <= {"Deployment", "StatefulSet"}


def test_the_store_keeps_what_it_has_and_refuses_instead_of_dropping() -> None:
    text = one(render(), "ConfigMap", "-store")["data"]["store.conf"]
    lines = dict(line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    assert lines["appendonly"] == "yes"
    assert lines["appendfsync"] == "everysec"
    assert lines["maxmemory-policy"] == "noeviction"
    assert lines["dir"] == "/data"
    (container,) = one(render(), "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert {"name": "data", "mountPath": "/data"} in container["volumeMounts"]


def test_claims_outlive_the_release() -> None:
    stateful = one(render(), "StatefulSet")["spec"]
    assert stateful["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    claims = of_kind(render({"pipeline": {"enabled": True}}), "PersistentVolumeClaim")
    assert len(claims) == 2
    assert all(found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for found in claims)


def policy(values: dict[str, Any], ending: str = "") -> Any:
    return one(render(values), "NetworkPolicy", ending or "routebook")["spec"]


def test_only_this_release_reaches_the_store() -> None:
    objects = render({"pipeline": {"enabled": True}})
    spec = one(objects, "NetworkPolicy", "-store")["spec"]
    (rule,) = spec["ingress"]
    reached = [selected(objects, peer["podSelector"]["matchLabels"]) for peer in rule["from"]]
    assert [[template.kind for template in found] for found in reached] == [["Deployment"], ["CronJob"]]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in spec


def test_the_admin_port_is_open_to_those_named_only() -> None:
    spec = policy({})
    public, admin = spec["ingress"]
    assert "from" not in public
    assert [port["port"] for port in admin["ports"]] == ["admin"]
    assert admin["from"] == [{"namespaceSelector": {}}]
    # An empty list of peers would mean everybody.
    closed = policy({"networkPolicy": {"adminFrom": []}})
    assert [port["port"] for rule in closed["ingress"] for port in rule["ports"]] == ["remoting", "http"]


def test_helm_test_gets_through_where_peers_are_named() -> None:
    named = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    objects = render({"networkPolicy": {"publicFrom": named}})
    own_test, *others = one(objects, "NetworkPolicy", "routebook")["spec"]["ingress"][0]["from"]
    assert [found.kind for found in selected(objects, own_test["podSelector"]["matchLabels"])] == ["Pod"]
    assert others == named


def test_egress_is_free_until_it_is_named() -> None:
    """A worker dials brokers wherever they are."""
    assert policy({})["policyTypes"] == ["Ingress"]
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
    named = policy({"networkPolicy": {"egress": [rule]}})
    assert named["policyTypes"] == ["Ingress", "Egress"]
    names, store, own = named["egress"]
    assert [port["port"] for port in names["ports"]] == [53, 53]
    assert [port["port"] for port in store["ports"]] == ["redis"]
    assert own == rule
