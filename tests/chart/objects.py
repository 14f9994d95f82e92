"""Reads rendered manifests strictly as Kubernetes objects, and answers common questions about them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.chart import tools  # noqa: F401 - puts yaml on the path

import yaml  # isort: skip

Object = dict[str, Any]
WORKLOADS = ("Deployment", "StatefulSet", "CronJob", "Pod")


class DuplicateKeyError(Exception):
    """A mapping has a key twice. Helm and Kubernetes would silently use the last one."""


class _StrictLoader(yaml.CSafeLoader):  # type: ignore[misc]
    pass


def _mapping(loader: Any, node: Any) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in found:
            raise DuplicateKeyError(f"{key!r}{key_node.start_mark}")
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(text: str) -> list[Object]:
    return [found for found in yaml.load_all(text, Loader=_StrictLoader) if found is not None]


@dataclass(frozen=True)
class PodTemplate:
    """The template of the pods that an object creates."""

    owner: str
    kind: str
    labels: dict[str, str]
    spec: Object

    @property
    def containers(self) -> list[Object]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def ports(self) -> list[Object]:
        return [port for container in self.containers for port in container.get("ports", [])]

    def has_port(self, name_or_number: str | int) -> bool:
        return any(name_or_number in (port.get("name"), port["containerPort"]) for port in self.ports)


def object_name(found: Object) -> str:
    return f"{found['kind']}/{found['metadata']['name']}"


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [found for found in objects if found["kind"] == kind]


def single(objects: list[Object], kind: str, ending: str = "") -> Object:
    (found,) = [found for found in of_kind(objects, kind) if found["metadata"]["name"].endswith(ending)]
    return found


def pod_templates(objects: list[Object]) -> list[PodTemplate]:
    return [_template(found) for found in objects if found["kind"] in WORKLOADS]


def _template(found: Object) -> PodTemplate:
    pod = found
    if found["kind"] == "CronJob":
        pod = found["spec"]["jobTemplate"]["spec"]["template"]
    elif found["kind"] != "Pod":
        pod = found["spec"]["template"]
    return PodTemplate(object_name(found), found["kind"], pod["metadata"].get("labels", {}), pod["spec"])


WORKER = "worker"
"""Component of the workers' Deployment. The pipeline's warm session is another Deployment."""


def worker_deployment(objects: list[Object]) -> Object:
    (found,) = [
        one
        for one in of_kind(objects, "Deployment")
        if one["metadata"]["labels"]["app.kubernetes.io/component"] == WORKER
    ]
    return found


def worker_template(objects: list[Object]) -> PodTemplate:
    return _template(worker_deployment(objects))


def main_container(objects: list[Object]) -> Object:
    """The worker's container, without those of extraContainers."""
    (found,) = [container for container in worker_template(objects).containers if container["name"] == "routebook"]
    return found


def selected_pods(objects: list[Object], selector: dict[str, str]) -> list[PodTemplate]:
    return [found for found in pod_templates(objects) if selector.items() <= found.labels.items()]


def walk(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yields every nested value with its path."""
    yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from walk(inner, (*path, index))


def settings_of(objects: list[Object], container: Object) -> dict[str, str]:
    """The container's ROUTEBOOK_* variables. One that comes from a Secret has an empty value."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        if "configMapRef" in source:
            found |= single(objects, "ConfigMap", source["configMapRef"]["name"])["data"]
    for variable in container.get("env", []):
        found[variable["name"]] = variable.get("value", "")
    return {name: text for name, text in found.items() if name.startswith("ROUTEBOOK_")}
