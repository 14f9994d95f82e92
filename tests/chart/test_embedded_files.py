"""Alert rules and dashboard are embedded unchanged: Helm must not interpret the templates meant for Prometheus."""

import json
from pathlib import Path

import pytest

from tests.chart.objects import read, single, worker_template
from tests.chart.rendering import CHART, merged, render, value_set
from tests.chart.tools import HELMS

VALUES = value_set(CHART / "ci" / "metrics.yaml")


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_the_rule_object_equals_the_rule_file(helm: Path) -> None:
    (rules,) = read((CHART / "files" / "alerts.yaml").read_text())
    assert single(render(VALUES, helm=helm), "PrometheusRule")["spec"] == rules
    assert len(rules["groups"]) >= 1


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_runbook_links_use_the_given_url(helm: Path) -> None:
    page = "https://git.example/fleet/$1/blob/main/docs/runbook.md"
    values = merged(VALUES, {"metrics": {"prometheusRule": {"runbookUrl": page}}})
    groups = single(render(values, helm=helm), "PrometheusRule")["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"]]
    assert len(alerts) > 30
    for alert in alerts:
        assert alert["annotations"]["runbook_url"] == f"{page}#{alert['alert'].lower()}"


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_the_dashboard_object_equals_the_dashboard_file(helm: Path) -> None:
    (text,) = single(render(VALUES, helm=helm), "ConfigMap", "-dashboard")["data"].values()
    assert json.loads(text) == json.loads((CHART / "files" / "dashboard.json").read_text())


def test_objects_carry_the_labels_that_others_select_by() -> None:
    objects = render(VALUES)
    for kind in ("PodMonitor", "PrometheusRule"):
        assert single(objects, kind)["metadata"]["labels"]["release"] == "prometheus"
    dashboard = single(objects, "ConfigMap", "-dashboard")["metadata"]
    assert dashboard["labels"]["grafana_dashboard"] == "1"
    assert dashboard["annotations"] == {"grafana_folder": "RocketMQ"}


def test_several_releases_use_one_dashboard_file_name() -> None:
    """Grafana rejects a folder in which two dashboards have the same uid."""
    names = {
        name
        for release in ("one", "two")
        for name in single(render(release=release), "ConfigMap", "-dashboard")["data"]
    }
    assert names == {"routebook.json"}


def test_the_dashboard_is_small_enough_for_kubectl_apply() -> None:
    """`kubectl apply` copies the whole object into an annotation, which may have 256 KiB."""
    dashboard = single(render(), "ConfigMap", "-dashboard")
    assert len(json.dumps(dashboard)) < 200 * 1024


def test_an_image_can_be_pinned_by_digest() -> None:
    digest = f"sha256:{'ab' * 32}"
    container = worker_template(render({"image": {"digest": digest, "repository": "registry.example/r"}})).containers[0]
    assert container["image"] == f"registry.example/r@{digest}"
