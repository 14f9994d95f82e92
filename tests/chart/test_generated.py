"""The generated files are up to date, and Helm accepts the chart with all sets of values."""

from pathlib import Path

import pytest

import routebook
from tests.chart.generate import GENERATED
from tests.chart.rendering import CHART, VALUE_SETS, merged, render, run, template, value_set
from tests.chart.tools import HELMS

import yaml  # isort: skip


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_files_are_up_to_date(path: Path) -> None:
    assert path.read_text() == GENERATED[path](), "run: make chart-values"


def test_the_chart_has_the_version_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (routebook.__version__, routebook.__version__)


def test_there_are_at_least_twelve_sets_of_values() -> None:
    assert len(VALUE_SETS) >= 12


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
@pytest.mark.parametrize("path", VALUE_SETS, ids=lambda path: path.stem)
def test_lint_finds_nothing(path: Path, helm: Path) -> None:
    result = run(helm, "lint", "--strict", str(CHART), "--values", str(path))
    assert result.code == 0, result.text + result.errors


@pytest.mark.parametrize("path", VALUE_SETS, ids=lambda path: path.stem)
def test_all_releases_of_helm_render_the_same_objects(path: Path) -> None:
    first, *others = (render(value_set(path), helm=helm) for helm in HELMS)
    for other in others:
        assert by_name(other) == by_name(first)


def by_name(objects: list[dict[str, object]]) -> dict[str, dict[str, object]]:
    """Without the data of the Secret whose token is random."""
    return {
        str((found["kind"], found["metadata"])): {**found, "data": None} if _is_random(found) else found
        for found in objects
    }


def _is_random(found: dict[str, object]) -> bool:
    return found["kind"] == "Secret" and "ROUTEBOOK_ADMIN_TOKEN" in str(found.get("data"))


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
@pytest.mark.parametrize(
    ("version", "accepted"), [("v1.29.9", False), ("v1.30.0", True), ("v1.33.4-gke.100", True), ("v1.37.1", True)]
)
def test_kubernetes_releases_without_the_pre_stop_sleep_are_refused(helm: Path, version: str, accepted: bool) -> None:
    result = template(helm=helm, kube_version=version)
    assert (result.code == 0) is accepted
    assert accepted or "kubeVersion" in result.errors


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replica": 2}, "replica"),
        ({"settings": {"broker_timeout": 1}}, "broker_timeout"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": "3"}, "replicas"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"service": {"type": "ExternalName"}}, "type"),
        ({"service": {"remotingPort": 70000}}, "remotingPort"),
        ({"drain": {"preStopSeconds": 0}}, "preStopSeconds"),
        ({"store": {"external": {"url": "http://store"}}}, "url"),
        ({"store": {"builtin": {"maxMemory": "1Gi"}}}, "maxMemory"),
        ({"fullnameOverride": "9names"}, "fullnameOverride"),
        ({"podLabels": {"a": 1}}, "podLabels"),
        ({"nameOverride": "Names"}, "nameOverride"),
        ({"nameOverride": "names-"}, "nameOverride"),
        ({"metrics": {"podMonitor": {"enabled": "yes"}}}, "enabled"),
        ({"metrics": {"prometheusRule": {"runbookUrl": "docs/runbook.md"}}}, "runbookUrl"),
    ],
)
def test_the_schema_refuses_impossible_values(values: dict[str, object], named: str, helm: Path) -> None:
    result = template(values, helm=helm)
    assert result.code != 0
    assert named in result.errors


def test_values_that_a_parent_chart_passes_are_accepted() -> None:
    assert template(merged({"global": {"any": 1}}, {"enabled": True})).code == 0
