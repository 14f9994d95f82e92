"""The dashboard's structure: there is no Grafana among the tests, so what it would stumble over is looked for here.
`test_scraping.py` has a real Prometheus answer every query.
"""

import itertools
import re
from typing import Any

import pytest

from tests.metrics.dashboard_file import queries, read_dashboard
from tests.metrics.rules_file import metrics_in, read_alerts
from tests.metrics.test_documentation import ONLY_OF_SEVERAL
from tests.runtime.running import Running

pytestmark = pytest.mark.xdist_group("metrics")

BOARD = read_dashboard()
PANELS: list[dict[str, Any]] = BOARD["panels"]
SHOWN = [panel for panel in PANELS if panel["type"] != "row"]
KEPT_FOR_THE_CURIOUS = {
    "process_virtual_memory_bytes",
    "routebook_leader_token",
    "routebook_http_request_seconds",
    "routebook_history_readers",
}
BUILD_INFO = 'routebook_build_info{namespace=~"$namespace", job=~"$job"}'
UNITS = {"short", "s", "bytes", "percentunit", "reqps", "cps", "ops"}
"""Of Grafana's, those in use."""


def titled(panel: dict[str, Any]) -> str:
    return str(panel["title"])


def _families_of(name: str) -> set[str]:
    return {name, re.sub(r"_(bucket|count|sum)$", "", name)}


def test_it_can_be_imported() -> None:
    assert BOARD["schemaVersion"] >= 38, "Grafana 10"
    assert BOARD["id"] is None, "a number of one Grafana means another dashboard in the next"
    assert (BOARD["title"], BOARD["uid"]) == ("Routebook", "routebook")
    assert "__inputs" not in BOARD, "a ConfigMap has nobody to ask"


def test_ids_are_unique() -> None:
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids)


def test_the_rows_are_those_an_operator_looks_for() -> None:
    assert [panel["title"] for panel in PANELS if panel["type"] == "row"] == [
        "Fleet",
        "Lookups",
        "Registrations",
        "Replicas and store",
        "Expiry, leader, history",
        "Process",
    ]


def test_no_panel_lies_upon_another_or_beyond_the_edge() -> None:
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


@pytest.mark.parametrize("panel", SHOWN, ids=titled)
def test_each_panel_is_whole(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["type"] in ("stat", "timeseries")
    assert panel["targets"]
    for target in panel["targets"]:
        assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert target.get("instant") or target.get("range")
        assert panel["type"] == "stat" or target["legendFormat"], "a line without a name"
    references = [target["refId"] for target in panel["targets"]]
    assert len(set(references)) == len(references)


@pytest.mark.parametrize("panel", SHOWN, ids=titled)
def test_each_query_is_about_the_chosen_service_alone(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        expr = target["expr"]
        selectors = re.findall(r"\b(?:routebook|process)_[a-z_]+\b(\{[^}]*\})?", expr)
        assert selectors
        assert all('namespace=~"$namespace", job=~"$job"' in one for one in selectors), expr
        if "process_" in expr:
            assert expr.endswith("and on (namespace, job, instance) " + BUILD_INFO), "others of the job are not ours"


@pytest.mark.parametrize("panel", SHOWN, ids=titled)
def test_legends_name_labels_that_are_left(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        grouped = re.match(r"^(?:histogram_quantile\([\d.]+, )?\w+ by \(([^)]*)\)", target["expr"])
        if grouped:
            assert named <= {label.strip() for label in grouped[1].split(",")} - {"le"}
        elif re.match(r"^(sum|max|min|count)\(", target["expr"]):
            assert not named
        else:
            assert named <= {"instance"}


def test_variables_are_those_that_queries_use() -> None:
    variables = {one["name"]: one for one in BOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "job"]
    assert variables["datasource"]["type"] == "datasource"
    for name in ("namespace", "job"):
        assert variables[name]["query"]["query"] == f"label_values(routebook_build_info, {name})"
        assert variables[name]["allValue"] == ".*", "a service without a namespace has no such label"
    used = {name for _, expr in _raw() for name in re.findall(r"\$(\w+)", expr)}
    assert used == {"namespace", "job", "__rate_interval"}
    assert not any("$" in expr for _, expr in queries())


def _raw() -> list[tuple[str, str]]:
    return [(panel["title"], target["expr"]) for panel in SHOWN for target in panel["targets"]]


def _shown(service: Running) -> set[str]:
    """By a real worker, and what a real one of several processes shows besides (`test_documentation.py`)."""
    text = service.ask_admin("/metrics").text
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} | ONLY_OF_SEVERAL


def _asked_for() -> set[str]:
    asked = {name for _, expr in _raw() for name in metrics_in(expr)}
    return asked | {name for alert in read_alerts() for name in metrics_in(alert.expr)}


def test_every_metric_of_dashboard_and_alerts_is_one_that_workers_show(busy: Running) -> None:
    shown = _shown(busy)
    assert {name for name in _asked_for() if not _families_of(name) & shown} == set()


def test_every_metric_is_looked_at_by_somebody(busy: Running) -> None:
    """On the dashboard or in an alert; what nobody looks at would better not be counted."""
    looked_at = {family for name in _asked_for() for family in _families_of(name)}
    assert _shown(busy) - looked_at == KEPT_FOR_THE_CURIOUS
