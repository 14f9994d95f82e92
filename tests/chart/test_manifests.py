"""Checks what an API server would refuse, for every set of values and for unusual release names."""

import json
import re
from collections import Counter
from functools import reduce
from pathlib import Path

import pytest

from tests.chart.objects import DuplicateKeyError, Object, object_name, of_kind, read, single, walk
from tests.chart.rendering import VALUE_SETS, merged, render, value_set
from tests.chart.schemas import schema_errors
from tests.chart.tools import HELMS

KUBERNETES = ("1.30", "1.34", "1.37")
LONGEST = "a-release-with-a-name-as-long-as-helm-lets-it-be-53ab"
LONGEST_TOO = "a-release-with-a-name-as-long-as-helm-lets-it-be-53cd"
UNUSUAL_NAMES = ("n", "on", "123", "1e3", "0x10", "null", "true", "a.b", "1.5", "routebook", "my-routebook-2", LONGEST)

QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# A StatefulSet's pods have a label with its name and a hash; a CronJob's jobs have its name and a number.
LONGEST_NAME = {"Service": 63, "StatefulSet": 52, "CronJob": 52, "Deployment": 47, "Pod": 63}

# The release's name is part of every object, so for unusual names one set of values that renders all kinds is enough.
ALL_KINDS = ("pipeline-claims", "metrics", "load-balancer")
RENDERINGS = [(path.stem, "rb") for path in VALUE_SETS] + [("all kinds", release) for release in UNUSUAL_NAMES]
_SETS = {path.stem: value_set(path) for path in VALUE_SETS}
_SETS["all kinds"] = reduce(merged, (_SETS[name] for name in ALL_KINDS))


@pytest.fixture(params=RENDERINGS, ids="-".join)
def objects(request: pytest.FixtureRequest) -> list[Object]:
    name, release = request.param
    return render(_SETS[name], release=release)


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_field_is_in_the_kubernetes_schemas(objects: list[Object], version: str) -> None:
    assert [f"{object_name(found)}: {error}" for found in objects for error in schema_errors(found, version)] == []


def test_an_unknown_field_is_found() -> None:
    (found,) = [found for found in render() if found["kind"] == "Deployment"]
    broken = {**found, "spec": {**found["spec"], "replica": 3}}
    assert any("replica" in error for error in schema_errors(broken, "1.34"))


@pytest.mark.parametrize(
    ("kind", "shown", "misspelt"),
    [
        ("PodMonitor", "podMetricsEndpoints", "endpoints"),
        ("PodMonitor", "interval", "scrapeInterval"),
        ("ServiceMonitor", "endpoints", "podMetricsEndpoints"),
        ("PrometheusRule", "expr", "expression"),
        ("PrometheusRule", "annotations", "annotation"),
    ],
)
def test_an_unknown_field_of_an_operator_kind_is_found(kind: str, shown: str, misspelt: str) -> None:
    values = {"metrics": {"serviceMonitor": {"enabled": True}}} if kind == "ServiceMonitor" else _SETS["metrics"]
    found = single(render(values), kind)
    assert schema_errors(found, "1.34") == []
    broken = json.loads(json.dumps(found).replace(f'"{shown}":', f'"{misspelt}":'))
    assert any(misspelt in error for error in schema_errors(broken, "1.34"))


def test_a_duplicate_key_is_found() -> None:
    with pytest.raises(DuplicateKeyError, match="name"):
        read("metadata:\n  name: a\n  name: b\n")


def test_no_two_objects_have_the_same_name(objects: list[Object]) -> None:
    assert [name for name, count in Counter(map(object_name, objects)).items() if count > 1] == []


def test_object_names_are_valid_in_kubernetes(objects: list[Object]) -> None:
    for found in objects:
        name = found["metadata"]["name"]
        pattern = SERVICE_NAME if found["kind"] == "Service" else DNS_NAME
        assert isinstance(name, str), object_name(found)
        assert pattern.fullmatch(name), object_name(found)
        assert len(name) <= LONGEST_NAME.get(found["kind"], 253), object_name(found)


def test_labels_and_annotations_are_strings(objects: list[Object]) -> None:
    for found in objects:
        for path, value in walk(found):
            if path and path[-1] in ("labels", "matchLabels") and isinstance(value, dict):
                assert all(isinstance(text, str) and LABEL.fullmatch(text) for text in value.values()), (path, value)
            if path and path[-1] in ("annotations", "data", "stringData") and isinstance(value, dict):
                assert all(isinstance(text, str) for text in value.values()), (path, value)


def test_quantities_are_valid(objects: list[Object]) -> None:
    found = {
        (object_name(workload), path): value
        for workload in objects
        for path, value in walk(workload)
        if {"requests", "limits"} & set(path[:-1]) or (path and path[-1] in ("sizeLimit", "averageValue"))
    }
    assert found or not of_kind(objects, "Deployment")
    assert [path for path, value in found.items() if not QUANTITY.fullmatch(str(value))] == []


def test_shortened_names_stay_distinct() -> None:
    names = [{found["metadata"]["name"] for found in render(release=release)} for release in (LONGEST, LONGEST_TOO)]
    assert not names[0] & names[1]


def test_no_object_sets_its_namespace(objects: list[Object]) -> None:
    """Helm puts every object into the release's namespace."""
    assert [object_name(found) for found in objects if "namespace" in found["metadata"]] == []


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
@pytest.mark.parametrize("release", UNUSUAL_NAMES)
def test_unusual_release_names_become_labels_unchanged(release: str, helm: Path) -> None:
    for found in render(helm=helm, release=release):
        assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == release
