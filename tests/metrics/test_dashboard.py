"""Checks the dashboard's structure, since the tests have no Grafana that would reject it.

`test_scraping.py` has a real Prometheus answer every query.
"""

import itertools
import re
from typing import Any

import pytest

from tests.metrics.dashboard_file import queries, read_dashboard
from tests.metrics.rules_file import metrics_in, read_alerts
from tests.metrics.test_documentation import ONLY_WITH_PROCESSES
from tests.runtime.running import Running

pytestmark = pytest.mark.xdist_group("metrics")

BOARD = read_dashboard()
PANELS: list[dict[str, Any]] = BOARD["panels"]
DATA_PANELS = [panel for panel in PANELS if panel["type"] != "row"]
NOT_SHOWN = {
    "process_virtual_memory_bytes",
    "routebook_leader_token",
    "routebook_http_request_seconds",
    "routebook_history_readers",
    "routebook_audit_records_total",
    "routebook_open_access",
}
BUILD_INFO = 'routebook_build_info{namespace=~"$namespace", job=~"$job"}'
UNITS = {"short", "s", "bytes", "percentunit", "reqps", "cps", "ops"}
"""The Grafana units in use."""


def panel_title(panel: dict[str, Any]) -> str:
    return str(panel["title"])


def _families_of(name: str) -> set[str]:
    return {name, re.sub(r"_(bucket|count|sum)$", "", name)}


def test_the_dashboard_can_be_imported() -> None:
    assert BOARD["schemaVersion"] >= 38, "Grafana 10"
    assert BOARD["id"] is None, "ids are local to one Grafana instance"
    assert (BOARD["title"], BOARD["uid"]) == ("Routebook", "routebook")
    assert "__inputs" not in BOARD, "inputs are asked for interactively, which a ConfigMap cannot do"


def test_panel_ids_are_unique() -> None:
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids)


def test_the_rows_have_their_titles_and_order() -> None:
    assert [panel["title"] for panel in PANELS if panel["type"] == "row"] == [
        "Fleet",
        "Lookups",
        "Registrations",
        "Replicas and store",
        "Expiry, leader, history",
        "Process",
    ]


def test_panels_do_not_overlap_or_exceed_the_width() -> None:
    places = [panel["gridPos"] for panel in PANELS]
    assert all(place["x"] >= 0 and place["w"] > 0 and place["x"] + place["w"] <= 24 for place in places)
    for one, other in itertools.combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


@pytest.mark.parametrize("panel", DATA_PANELS, ids=panel_title)
def test_each_panel_is_complete(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["type"] in ("stat", "timeseries")
    assert panel["targets"]
    for target in panel["targets"]:
        assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert target.get("instant") or target.get("range")
        assert panel["type"] == "stat" or target["legendFormat"], "a line needs a name"
    references = [target["refId"] for target in panel["targets"]]
    assert len(set(references)) == len(references)


@pytest.mark.parametrize("panel", DATA_PANELS, ids=panel_title)
def test_each_query_selects_only_the_chosen_service(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        expr = target["expr"]
        selectors = re.findall(r"\b(?:routebook|process)_[a-z_]+\b(\{[^}]*\})?", expr)
        assert selectors
        assert all('namespace=~"$namespace", job=~"$job"' in selector for selector in selectors), expr
        if "process_" in expr:
            assert expr.endswith("and on (namespace, job, instance) " + BUILD_INFO), "the job may have others"


@pytest.mark.parametrize("panel", DATA_PANELS, ids=panel_title)
def test_legends_use_only_labels_that_the_query_keeps(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        grouped = re.match(r"^(?:histogram_quantile\([\d.]+, )?\w+ by \(([^)]*)\)", target["expr"])
        if grouped:
            assert named <= {label.strip() for label in grouped[1].split(",")} - {"le"}
        elif re.match(r"^(sum|max|min|count)\(", target["expr"]):
            assert not named
        else:
            assert named <= {"instance"}


def test_queries_use_the_dashboards_variables() -> None:
    variables = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "job"]
    assert variables["datasource"]["type"] == "datasource"
    for name in ("namespace", "job"):
        assert variables[name]["query"]["query"] == f"label_values(routebook_build_info, {name})"
        assert variables[name]["allValue"] == ".*", "must also match services without that label"
    used = {name for _, expr in _raw() for name in re.findall(r"\$(\w+)", expr)}
    assert used == {"namespace", "job", "__rate_interval"}
    assert not any("$" in expr for _, expr in queries())


def _raw() -> list[tuple[str, str]]:
    return [(panel["title"], target["expr"]) for panel in DATA_PANELS for target in panel["targets"]]


def _exposed(service: Running) -> set[str]:
    """Metrics that a real worker exposes, and those that only several processes have (`test_documentation.py`)."""
    text = service.get_admin("/metrics").text
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} | ONLY_WITH_PROCESSES


def _queried() -> set[str]:
    on_dashboard = {name for _, expr in _raw() for name in metrics_in(expr)}
    return on_dashboard | {name for alert in read_alerts() for name in metrics_in(alert.expr)}


def test_every_metric_of_dashboard_and_alerts_is_exposed(used_worker: Running) -> None:
    exposed = _exposed(used_worker)
    assert {name for name in _queried() if not _families_of(name) & exposed} == set()


def test_every_metric_is_used_by_dashboard_or_alerts(used_worker: Running) -> None:
    """A metric that is used by neither should not exist."""
    used = {family for name in _queried() for family in _families_of(name)}
    assert _exposed(used_worker) - used == NOT_SHOWN
