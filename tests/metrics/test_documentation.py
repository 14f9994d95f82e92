"""docs/metrics.md and the code say the same: names, types, labels, and what becomes of them with several processes."""

import re
from dataclasses import dataclass

import pytest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from routebook.observability.exposition import Merging, Seen
from routebook.observability.metrics import Metrics
from tests.architecture.sources import ROOT
from tests.runtime.running import Running

pytestmark = pytest.mark.xdist_group("metrics")

PAGE = ROOT / "docs/metrics.md"
_ROW = re.compile(
    r"^\| `(?P<name>[a-z_]+)` \| (?P<kind>\w+) \| (?P<labels>[^|]*)\| (?P<together>\w*) *\| (?P<text>.+) \|$"
)
TOGETHER = {5.0: "sum", 3.0: "largest", 2.0: "smallest"}
"""Of two processes that say 2 and 3."""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    kind: str
    labels: frozenset[str]
    together: str


def _rows() -> list[Row]:
    found = [_ROW.match(line) for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert all(found), "a row that is written in another way"
    return [
        Row(row["name"], row["kind"], frozenset(re.findall(r"`(\w+)`", row["labels"])), row["together"])
        for row in found
        if row
    ]


ROWS = _rows()
ONLY_OF_SEVERAL = {row.name for row in ROWS if not row.together}
"""Shown where a worker has several processes."""


def _of_the_code() -> dict[str, Row]:
    found = {}
    for collector in Metrics().registry._collector_to_names:
        if isinstance(collector, MetricWrapperBase):
            (metric,) = collector.describe()
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            found[name] = Row(name, metric.type, frozenset(collector._labelnames), "")
    return found


def _names_in(text: str) -> dict[str, str]:
    families = text_string_to_metric_families(text)
    return {f"{one.name}_total" if one.type == "counter" else one.name: one.type for one in families}


def test_no_metric_is_told_of_twice() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_every_metric_of_the_code_is_explained_with_its_type_and_labels() -> None:
    told = {row.name: Row(row.name, row.kind, row.labels, "") for row in ROWS}
    code = _of_the_code()
    assert {name: told.get(name) for name in code} == code


def test_one_worker_shows_what_is_explained_and_nothing_else(busy: Running) -> None:
    shown = _names_in(busy.ask_admin("/metrics").text)
    assert shown == {row.name: row.kind for row in ROWS if row.name not in ONLY_OF_SEVERAL}


@pytest.mark.slow
def test_several_processes_show_all_of_it(busy_processes: Running) -> None:
    assert _names_in(busy_processes.ask_admin("/metrics").text) == {row.name: row.kind for row in ROWS}


@pytest.mark.parametrize("row", [row for row in ROWS if row.together], ids=lambda row: row.name)
def test_several_processes_are_put_together_as_it_says(row: Row) -> None:
    lines = 'N_bucket{le="+Inf"} V\nN_count V\nN_sum V\n' if row.kind == "histogram" else "N V\n"
    texts = [f"# TYPE N {row.kind}\n{lines}".replace("N", row.name).replace("V", value) for value in ("2", "3")]
    merged = Merging().merge(Seen(str(number), 0, text) for number, text in enumerate(texts))
    values = {
        sample.value
        for family in text_string_to_metric_families(merged)
        for sample in family.samples
        if sample.name.startswith(row.name)
    }
    assert {TOGETHER[value] for value in values} == {row.together}


def test_labels_are_few_and_bounded(busy: Running) -> None:
    """None grows with the fleet: no topic, broker or address of the traffic is in any of them."""
    text = busy.ask_admin("/metrics").text
    for word in ("Topic", "broker-", "127.0.0", "demo"):
        assert word not in re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    assert len(text.splitlines()) < 1_000
