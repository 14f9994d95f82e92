"""What any API server would refuse, without one: for every set of values, and for release names that break charts."""

import json
import re
from collections import Counter
from functools import reduce
from pathlib import Path

import pytest

from tests.chart.objects import DuplicateKeyError, Object, called, of_kind, one, read, walk
from tests.chart.rendering import VALUE_SETS, merged, render, value_set
from tests.chart.schemas import complaints
from tests.chart.tools import HELMS

KUBERNETES = ("1.30", "1.34", "1.37")
LONGEST = "a-release-with-a-name-as-long-as-helm-lets-it-be-53ab"
LONGEST_TOO = "a-release-with-a-name-as-long-as-helm-lets-it-be-53cd"
HOSTILE = ("n", "on", "123", "1e3", "0x10", "null", "true", "a.b", "1.5", "routebook", "my-routebook-2", LONGEST)

QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# Pods of a StatefulSet carry its name and a hash in a label, jobs of a CronJob its name and a number.
LONGEST_NAME = {"Service": 63, "StatefulSet": 52, "CronJob": 52, "Deployment": 47, "Pod": 63}

# A release's name is in every object, so one set of values that makes all kinds of them is enough for those.
ALL_KINDS = ("pipeline-claims", "metrics", "load-balancer")
RENDERINGS = [(path.stem, "rb") for path in VALUE_SETS] + [("all kinds", release) for release in HOSTILE]
_SETS = {path.stem: value_set(path) for path in VALUE_SETS}
_SETS["all kinds"] = reduce(merged, (_SETS[name] for name in ALL_KINDS))


@pytest.fixture(params=RENDERINGS, ids="-".join)
def objects(request: pytest.FixtureRequest) -> list[Object]:
    name, release = request.param
    return render(_SETS[name], release=release)


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_field(objects: list[Object], version: str) -> None:
    assert [f"{called(found)}: {said}" for found in objects for said in complaints(found, version)] == []


def test_what_no_kubernetes_knows_is_found() -> None:
    (found,) = [found for found in render() if found["kind"] == "Deployment"]
    broken = {**found, "spec": {**found["spec"], "replica": 3}}
    assert any("replica" in said for said in complaints(broken, "1.34"))


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
def test_what_no_operator_knows_is_found(kind: str, shown: str, misspelt: str) -> None:
    values = {"metrics": {"serviceMonitor": {"enabled": True}}} if kind == "ServiceMonitor" else _SETS["metrics"]
    found = one(render(values), kind)
    assert complaints(found, "1.34") == []
    broken = json.loads(json.dumps(found).replace(f'"{shown}":', f'"{misspelt}":'))
    assert any(misspelt in said for said in complaints(broken, "1.34"))


def test_a_key_that_stands_twice_is_found() -> None:
    with pytest.raises(DuplicateKeyError, match="name"):
        read("metadata:\n  name: a\n  name: b\n")


def test_no_two_objects_have_one_name(objects: list[Object]) -> None:
    assert [name for name, count in Counter(map(called, objects)).items() if count > 1] == []


def test_names_are_such_that_kubernetes_takes_them(objects: list[Object]) -> None:
    for found in objects:
        name = found["metadata"]["name"]
        pattern = SERVICE_NAME if found["kind"] == "Service" else DNS_NAME
        assert isinstance(name, str), called(found)
        assert pattern.fullmatch(name), called(found)
        assert len(name) <= LONGEST_NAME.get(found["kind"], 253), called(found)


def test_labels_and_annotations_are_texts(objects: list[Object]) -> None:
    for found in objects:
        for path, value in walk(found):
            if path and path[-1] in ("labels", "matchLabels") and isinstance(value, dict):
                assert all(isinstance(text, str) and LABEL.fullmatch(text) for text in value.values()), (path, value)
            if path and path[-1] in ("annotations", "data", "stringData") and isinstance(value, dict):
                assert all(isinstance(text, str) for text in value.values()), (path, value)


def test_quantities_can_be_read(objects: list[Object]) -> None:
    found = {
        (called(holder), path): value
        for holder in objects
        for path, value in walk(holder)
        if {"requests", "limits"} & set(path[:-1]) or (path and path[-1] in ("sizeLimit", "averageValue"))
    }
    assert found or not of_kind(objects, "Deployment")
    assert [where for where, value in found.items() if not QUANTITY.fullmatch(str(value))] == []


def test_names_cut_off_stay_apart() -> None:
    names = [{found["metadata"]["name"] for found in render(release=release)} for release in (LONGEST, LONGEST_TOO)]
    assert not names[0] & names[1]


def test_every_object_is_in_no_name_space_of_its_own(objects: list[Object]) -> None:
    """Helm puts it where the release is."""
    assert [called(found) for found in objects if "namespace" in found["metadata"]] == []


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
@pytest.mark.parametrize("release", HOSTILE)
def test_hostile_release_names_are_labels_as_they_are(release: str, helm: Path) -> None:
    for found in render(helm=helm, release=release):
        assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == release
