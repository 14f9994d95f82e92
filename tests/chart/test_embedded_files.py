"""Alarms and dashboard arrive as they stand in the repository: what of them is for Prometheus is not for Helm."""

import json
from pathlib import Path

import pytest

from tests.chart.objects import one, read, worker
from tests.chart.rendering import CHART, merged, render, value_set
from tests.chart.tools import HELMS

VALUES = value_set(CHART / "ci" / "metrics.yaml")


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_the_alarms_are_those_of_the_file(helm: Path) -> None:
    (rules,) = read((CHART / "files" / "alerts.yaml").read_text())
    assert one(render(VALUES, helm=helm), "PrometheusRule")["spec"] == rules
    assert len(rules["groups"]) >= 1


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_links_to_the_runbook_can_be_clicked_where_it_is_said_where_it_is(helm: Path) -> None:
    page = "https://git.example/fleet/routebook/blob/main/docs/runbook.md"
    values = merged(VALUES, {"metrics": {"prometheusRule": {"runbookUrl": page}}})
    groups = one(render(values, helm=helm), "PrometheusRule")["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"]]
    assert len(alerts) > 30
    for alert in alerts:
        assert alert["annotations"]["runbook_url"] == f"{page}#{alert['alert'].lower()}"


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_the_dashboard_is_that_of_the_file(helm: Path) -> None:
    (text,) = one(render(VALUES, helm=helm), "ConfigMap", "-dashboard")["data"].values()
    assert json.loads(text) == json.loads((CHART / "files" / "dashboard.json").read_text())


def test_labels_by_which_others_select_are_there() -> None:
    objects = render(VALUES)
    for kind in ("PodMonitor", "PrometheusRule"):
        assert one(objects, kind)["metadata"]["labels"]["release"] == "prometheus"
    dashboard = one(objects, "ConfigMap", "-dashboard")["metadata"]
    assert dashboard["labels"]["grafana_dashboard"] == "1"
    assert dashboard["annotations"] == {"grafana_folder": "RocketMQ"}


def test_the_dashboards_of_several_releases_are_one_file() -> None:
    """Grafana takes no more files of a folder in which two have one uid."""
    names = {
        name for release in ("one", "two") for name in one(render(release=release), "ConfigMap", "-dashboard")["data"]
    }
    assert names == {"routebook.json"}


def test_it_is_small_enough_to_be_applied() -> None:
    """`kubectl apply` writes the whole object into an annotation, of 256 KiB at most."""
    dashboard = one(render(), "ConfigMap", "-dashboard")
    assert len(json.dumps(dashboard)) < 200 * 1024


def test_an_image_may_be_named_by_its_digest() -> None:
    digest = f"sha256:{'ab' * 32}"
    container = worker(render({"image": {"digest": digest, "repository": "registry.example/r"}})).containers[0]
    assert container["image"] == f"registry.example/r@{digest}"
