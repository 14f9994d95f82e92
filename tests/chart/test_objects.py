"""Checks that objects fit each other, which linters and schemas cannot, since they see one object at a time."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.chart.objects import (
    Object,
    PodTemplate,
    main_container,
    object_name,
    of_kind,
    pod_templates,
    selected_pods,
    settings_of,
    single,
    walk,
    worker_deployment,
    worker_template,
)
from tests.chart.rendering import VALUE_SETS, render, value_set

PORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
EXTERNAL_OBJECTS = {
    # Objects that must already exist, according to a set of values.
    "store-address", "routebook-secrets", "routebook-tls", "client-authorities", "key-password", "reports",
    "store-password", "kv-config", "store-ca",
}  # fmt: skip


@pytest.fixture(params=VALUE_SETS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def objects(path: Path) -> list[Object]:
    return render(value_set(path))


def test_a_workload_selects_exactly_its_own_pods(objects: list[Object]) -> None:
    for kind in ("Deployment", "StatefulSet"):
        for found in of_kind(objects, kind):
            chosen = selected_pods(objects, found["spec"]["selector"]["matchLabels"])
            assert [template.owner for template in chosen] == [object_name(found)]


def test_services_and_budgets_select_one_workload(objects: list[Object]) -> None:
    for found in of_kind(objects, "Service"):
        assert len(selected_pods(objects, found["spec"]["selector"])) == 1, object_name(found)
    for found in of_kind(objects, "PodDisruptionBudget"):
        assert selected_pods(objects, found["spec"]["selector"]["matchLabels"]) == [worker_template(objects)]


def test_the_public_service_selects_workers_and_omits_the_admin_port(objects: list[Object]) -> None:
    (public,) = [found for found in of_kind(objects, "Service") if len(found["spec"]["ports"]) == 2]
    assert selected_pods(objects, public["spec"]["selector"]) == [worker_template(objects)]
    assert [port["targetPort"] for port in public["spec"]["ports"]] == ["remoting", "http"]
    assert public["spec"]["sessionAffinity"] == "None"


def test_ports_of_services_exist_in_their_pods(objects: list[Object]) -> None:
    for found in of_kind(objects, "Service"):
        for port in found["spec"]["ports"]:
            for template in selected_pods(objects, found["spec"]["selector"]):
                assert template.has_port(port["targetPort"]), (object_name(found), port)


def test_ports_of_policies_and_monitors_exist(objects: list[Object]) -> None:
    for found in of_kind(objects, "NetworkPolicy"):
        pods = selected_pods(objects, found["spec"]["podSelector"]["matchLabels"])
        assert len(pods) == 1, object_name(found)
        for rule in found["spec"]["ingress"]:
            assert all(pods[0].has_port(port["port"]) for port in rule["ports"]), object_name(found)
    for found in of_kind(objects, "PodMonitor"):
        pods = selected_pods(objects, found["spec"]["selector"]["matchLabels"])
        assert pods == [worker_template(objects)]
        assert all(pods[0].has_port(point["port"]) for point in found["spec"]["podMetricsEndpoints"])
    for found in of_kind(objects, "ServiceMonitor"):
        wanted = found["spec"]["selector"]["matchLabels"].items()
        (service,) = [it for it in of_kind(objects, "Service") if wanted <= it["metadata"]["labels"].items()]
        names = {port["name"] for port in service["spec"]["ports"]}
        assert {point["port"] for point in found["spec"]["endpoints"]} <= names


def test_port_names_are_short_and_unique(objects: list[Object]) -> None:
    for template in pod_templates(objects):
        names = [port["name"] for port in template.ports]
        assert max(Counter(names).values(), default=0) <= 1
        assert all(len(name) <= 15 and PORT_NAME.fullmatch(name) for name in names), names
        assert max(Counter(port["containerPort"] for port in template.ports).values(), default=0) <= 1


def test_probes_use_existing_ports(objects: list[Object]) -> None:
    for template in pod_templates(objects):
        for name, probe in probes(template):
            if "exec" in probe:
                continue
            port = (probe.get("httpGet") or probe["tcpSocket"])["port"]
            assert template.has_port(port), (template.owner, name)


def probes(template: PodTemplate) -> list[tuple[str, Any]]:
    return [
        (name, container[name])
        for container in template.containers
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
        if name in container
    ]


def test_every_mount_has_a_volume_and_every_volume_a_mount(objects: list[Object]) -> None:
    for template in pod_templates(objects):
        volumes = [volume["name"] for volume in template.spec.get("volumes", [])]
        if template.kind == "StatefulSet":
            volumes += [claim["metadata"]["name"] for claim in claims_of(objects, template)]
        mounts = {mount["name"] for container in template.containers for mount in container.get("volumeMounts", [])}
        assert sorted(volumes) == sorted(mounts), template.owner
        for container in template.containers:
            places = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            assert len(places) == len(set(places)), template.owner


def claims_of(objects: list[Object], template: PodTemplate) -> list[Object]:
    (owner,) = [found for found in objects if object_name(found) == template.owner]
    claims: list[Object] = owner["spec"].get("volumeClaimTemplates", [])
    return claims


def test_objects_that_pods_refer_to_exist(objects: list[Object]) -> None:
    rendered = {(found["kind"], found["metadata"]["name"]) for found in objects}
    for template in pod_templates(objects):
        for kind, name in references(template):
            assert (kind, name) in rendered or name in EXTERNAL_OBJECTS, (template.owner, kind, name)


def references(template: PodTemplate) -> list[tuple[str, str]]:
    found = []
    for path, value in walk(template.spec):
        match path[-1] if path else None:
            case "configMapRef" | "configMapKeyRef" | "configMap":
                found.append(("ConfigMap", value["name"]))
            case "secretRef" | "secretKeyRef":
                found.append(("Secret", value["name"]))
            case "secret":
                found.append(("Secret", value["secretName"]))
            case "persistentVolumeClaim":
                found.append(("PersistentVolumeClaim", value["claimName"]))
    return found


def test_the_autoscaler_targets_the_deployment(objects: list[Object]) -> None:
    deployment = worker_deployment(objects)
    for found in of_kind(objects, "HorizontalPodAutoscaler"):
        assert found["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
        assert deployment["spec"]["replicas"] == found["spec"]["minReplicas"]


def test_no_environment_variable_is_set_twice(objects: list[Object]) -> None:
    for template in pod_templates(objects):
        for container in template.containers:
            names = [variable["name"] for variable in container.get("env", [])]
            assert len(names) == len(set(names)), template.owner


def test_the_default_values_render_the_documented_objects() -> None:
    kinds = Counter(found["kind"] for found in render())
    assert kinds == {
        "ServiceAccount": 1, "ConfigMap": 3, "Service": 3, "Deployment": 1, "StatefulSet": 1,
        "PodDisruptionBudget": 1, "NetworkPolicy": 2, "Pod": 1, "Secret": 1,
    }  # fmt: skip


def test_no_setting_is_in_both_the_config_map_and_env(objects: list[Object]) -> None:
    """`env` would override the ConfigMap, whose value would then mislead."""
    container = main_container(objects)
    own = {variable["name"] for variable in container["env"]}
    (shared,) = [source["configMapRef"]["name"] for source in container["envFrom"] if "configMapRef" in source]
    assert not own & single(objects, "ConfigMap", shared)["data"].keys()
    assert settings_of(objects, container)
