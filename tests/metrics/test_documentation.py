"""docs/metrics.md matches the code: names, types, labels, and how several processes are combined."""

import re
from dataclasses import dataclass

import pytest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from routebook.observability.exposition import ExpositionMerger, WorkerExposition
from routebook.observability.metrics import Metrics
from tests.architecture.sources import ROOT
from tests.runtime.running import Running

pytestmark = pytest.mark.xdist_group("metrics")

PAGE = ROOT / "docs/metrics.md"
_ROW = re.compile(
    r"^\| `(?P<name>[a-z_]+)` \| (?P<kind>\w+) \| (?P<labels>[^|]*)\| (?P<combined>\w*) *\| (?P<text>.+) \|$"
)
COMBINED = {5.0: "sum", 3.0: "max", 2.0: "min"}
"""How two processes that report 2 and 3 were combined, by the result."""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    kind: str
    labels: frozenset[str]
    combined: str


def _rows() -> list[Row]:
    found = [_ROW.match(line) for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert all(found), "a row of the table does not have the expected form"
    return [
        Row(row["name"], row["kind"], frozenset(re.findall(r"`(\w+)`", row["labels"])), row["combined"])
        for row in found
        if row
    ]


ROWS = _rows()
ONLY_WITH_PROCESSES = {row.name for row in ROWS if not row.combined}
"""Metrics that only a worker with several processes has."""


def _defined_in_code() -> dict[str, Row]:
    found = {}
    for collector in Metrics().registry._collector_to_names:
        if isinstance(collector, MetricWrapperBase):
            (metric,) = collector.describe()
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            found[name] = Row(name, metric.type, frozenset(collector._labelnames), "")
    return found


def _types_by_name(text: str) -> dict[str, str]:
    families = text_string_to_metric_families(text)
    return {f"{it.name}_total" if it.type == "counter" else it.name: it.type for it in families}


def test_no_metric_is_documented_twice() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_every_metric_is_documented_with_its_type_and_labels() -> None:
    documented = {row.name: Row(row.name, row.kind, row.labels, "") for row in ROWS}
    code = _defined_in_code()
    assert {name: documented.get(name) for name in code} == code


def test_a_worker_exposes_exactly_the_documented_metrics(used_worker: Running) -> None:
    exposed = _types_by_name(used_worker.get_admin("/metrics").text)
    assert exposed == {row.name: row.kind for row in ROWS if row.name not in ONLY_WITH_PROCESSES}


@pytest.mark.slow
def test_several_processes_expose_all_documented_metrics(used_processes: Running) -> None:
    assert _types_by_name(used_processes.get_admin("/metrics").text) == {row.name: row.kind for row in ROWS}


@pytest.mark.parametrize("row", [row for row in ROWS if row.combined], ids=lambda row: row.name)
def test_several_processes_are_combined_as_documented(row: Row) -> None:
    lines = 'N_bucket{le="+Inf"} V\nN_count V\nN_sum V\n' if row.kind == "histogram" else "N V\n"
    texts = [f"# TYPE N {row.kind}\n{lines}".replace("N", row.name).replace("V", value) for value in ("2", "3")]
    merged = ExpositionMerger().merge(WorkerExposition(str(number), 0, text) for number, text in enumerate(texts))
    values = {
        sample.value
        for family in text_string_to_metric_families(merged)
        for sample in family.samples
        if sample.name.startswith(row.name)
    }
    assert {COMBINED[value] for value in values} == {row.combined}


def test_labels_do_not_grow_with_the_fleet(used_worker: Running) -> None:
    """No label contains a topic, broker or address of the traffic."""
    text = used_worker.get_admin("/metrics").text
    for word in ("Topic", "broker-", "127.0.0", "demo"):
        assert word not in re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    assert len(text.splitlines()) < 1_000
