"""The page rendered from plain rows: well-formed, safe and bounded in size. No Spark runs here."""

import re
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from routebook_pipeline import schemas
from routebook_pipeline.answers.catalogue import QUESTIONS
from routebook_pipeline.history import DAY_MS, Thresholds, Window
from routebook_pipeline.report.data import UNKNOWN, UNPLANNED, UP, Band, ReportData
from routebook_pipeline.report.page import render
from tests.pipeline.report.downtimes import START_MS
from tests.pipeline.report.sample import fleet
from tests.pipeline.report.strict_html import Element, charts, read

FLEET = fleet()
PAGE = render(FLEET)
EMPTY = ReportData("default", Window(START_MS, START_MS + DAY_MS))
HOSTILE = (
    "<script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onload='alert(1)",
    "</title></svg></style><img src=x onerror=alert(1)>",
    "&lt;b&gt;&#60;",
    "{style}{0}%s",
    "\u202egnp.exe\x00\x1b[31m\x85\ud800\uffff",
    "广播-مركز",
    "n" * 5000,
)
ORDER = [
    "Integrity and completeness",
    "Objectives",
    "Ups and downs",
    "Failures and flaps",
    "Heartbeat gaps",
    "Exposure",
    "Capacity and skew",
    "Churn of topics",
    "Failovers",
    "Anomalies",
    "How each figure is defined",
]
NAMED = {"cluster", "broker", "worst_group", "top_topic", "subject", "rule", "severity", "from_address", "to_address"}


def with_names(data: ReportData, name: str) -> ReportData:
    """The same data with this name in place of every name of the fleet."""

    def renamed(row: dict[str, Any]) -> dict[str, Any]:
        changed = {key: name if key in NAMED and value is not None else value for key, value in row.items()}
        if "causes" in changed:
            changed["causes"] = {name: 3}
        if "unreadable" in changed:
            changed["unreadable"] = {name: 1}
        return changed

    rows: dict[str, Any] = {
        field.name: [renamed(dict(row)) for row in getattr(data, field.name)]
        for field in fields(data)
        if field.name not in {"bands", "notes"} and isinstance(getattr(data, field.name), list | tuple)
    }
    bands = [replace(band, cluster=name, broker=name) for band in data.bands]
    return replace(data, namespace=name, notes=[name], made_by=name, bands=bands, **rows)


def of_class(root: Element, name: str, css: str) -> list[Element]:
    return [element for element in root.all(name) if css in (element.attributes.get("class") or "").split()]


def test_the_sections_are_in_their_order() -> None:
    headings = [element.words.strip() for element in read(PAGE).all("h2")]
    assert headings[2:] == ORDER


def test_the_page_and_each_chart_are_well_formed() -> None:
    read(PAGE)
    assert len(charts(PAGE)) == 7


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_cannot_become_markup(name: str) -> None:
    page = render(with_names(FLEET, name))
    root = read(page)
    charts(page)
    elements = [element for child in root.children for element in _all(child)]
    assert {element.name for element in elements} <= {element.name for element in _all(read(PAGE))}
    assert not [key for element in elements for key in element.attributes if key.startswith("on")]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", page)
    page.encode("utf-8")


def _all(element: Element) -> list[Element]:
    return [element, *(inner for child in element.children for inner in _all(child))]


def test_invisible_characters_are_written_as_escapes() -> None:
    assert r"\u{202e}gnp.exe\u{0}\u{1b}[31m" in render(with_names(FLEET, HOSTILE[6]))


def test_the_page_loads_nothing() -> None:
    root = read(PAGE)
    addresses = [
        value
        for element in _all(root)
        for key, value in element.attributes.items()
        if key in {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "background"}
    ]
    assert all(address and (address.startswith("#") or address == "data:,") for address in addresses)
    assert not root.all("script")
    assert not root.all("iframe")
    style = root.all("style")[0].text
    assert "@import" not in style
    assert re.findall(r"url\(([^)]*)\)", PAGE) == ["#stripes"]
    assert "//" not in re.sub(r"<style>.*</style>", "", PAGE, flags=re.DOTALL)


def test_every_inner_link_has_a_target() -> None:
    elements = _all(read(PAGE))
    ids = [element.attributes["id"] for element in elements if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    targets = [href[1:] for element in elements if (href := element.attributes.get("href") or "").startswith("#")]
    assert targets
    assert set(targets) <= set(ids)


def test_every_chart_has_a_table_and_a_label() -> None:
    root = read(PAGE)
    drawn = root.all("svg")
    figures = root.all("figure")
    assert len(figures) == len(drawn)
    for figure in figures:
        assert figure.all("svg")[0].attributes["aria-label"]
        assert figure.all("details")[0].all("table")
        assert figure.all("figcaption")


def test_every_table_has_a_caption_and_headings() -> None:
    for table in read(PAGE).all("table"):
        assert table.all("caption")[0].words.strip()
        assert {heading.attributes["scope"] for heading in table.all("th")} == {"col", "row"}
        widths = {len(row.all("td")) + len(row.all("th")) for row in table.all("tr")}
        assert len(widths) == 1


def test_every_section_of_an_empty_report_says_that_it_is_empty() -> None:
    page = render(EMPTY)
    root = read(page)
    assert not root.all("svg")
    assert len(of_class(root, "p", "nothing")) >= 10
    assert "Nothing to assess" in page


def test_the_size_of_the_page_is_bounded_for_ten_thousand_brokers() -> None:
    large = render(fleet(days=7, clusters={f"cluster-{n:03d}": 50 for n in range(100)}))
    assert len(large) < 300_000
    assert "and 9,970 more<span>: " in large
    assert "routebook pipeline run availability --by seat --namespace production --from 2026-11-01T00:00Z" in large


def test_the_size_of_the_page_is_bounded_for_a_year() -> None:
    year = render(fleet(days=365))
    assert len(year) < 500_000
    read(year)
    assert "in routes, every 4 days" in year


def test_days_without_failures_are_drawn_too() -> None:
    rows = [row for row in FLEET.exposure_by_cluster if row["day"] in {"2026-11-02", "2026-11-05"}]
    page = render(replace(FLEET, exposure_by_cluster=rows))
    assert all(f">{day} Nov</text>" in page for day in range(1, 15))


def test_without_bands_the_table_of_brokers_is_shown() -> None:
    page = render(replace(FLEET, bands=()))
    assert "92 brokers, most unplanned time first." in page
    assert "Brokers by time down" in page


def test_the_chart_of_a_broker_with_very_many_flaps_is_small() -> None:
    states = (UP, UNPLANNED, UNKNOWN)
    seat = FLEET.bands[0]
    flapping = [
        replace(seat, state=states[n % 3], start_ms=START_MS + n * 1000, end_ms=START_MS + (n + 1) * 1000)
        for n in range(100_000)
    ]
    page = render(replace(FLEET, bands=[*flapping, *FLEET.bands]))
    assert len(page) < 400_000
    assert "times, in total" in page


def test_totals_count_rows_that_the_data_does_not_contain() -> None:
    page = render(replace(FLEET, totals={"availability_by_seat": 12_345, "anomalies": 777}))
    assert "and 12,315 more" in page
    assert "777 findings" in page


def test_the_sample_has_the_columns_of_the_answers() -> None:
    for name, schema in {
        "integrity": schemas.INTEGRITY,
        "availability_by_cluster": schemas.AVAILABILITY_BY_CLUSTER,
        "availability_by_group": schemas.AVAILABILITY_BY_GROUP,
        "availability_by_seat": schemas.AVAILABILITY_BY_SEAT,
        "failures_by_cluster": schemas.FAILURES,
        "failures_by_seat": schemas.FAILURES,
        "flaps": schemas.FLAPS,
        "heartbeat_gaps_by_cluster": schemas.HEARTBEAT_GAPS,
        "heartbeat_gaps_by_seat": schemas.HEARTBEAT_GAPS,
        "exposure_by_cluster": schemas.EXPOSURE_BY_CLUSTER,
        "exposure_by_group": schemas.EXPOSURE_BY_GROUP,
        "capacity": schemas.CAPACITY,
        "churn": schemas.CHURN,
        "failovers": schemas.FAILOVERS,
        "failovers_by_group": schemas.FAILOVERS_BY_GROUP,
        "anomalies": schemas.ANOMALIES,
    }.items():
        rows = getattr(FLEET, name)
        assert rows, name
        assert all(set(row) == set(schema.names) for row in rows), name


@pytest.mark.parametrize("rows", ["availability_by_cluster", "availability_by_seat", "capacity", "churn", "failovers"])
def test_ratios_may_be_null(rows: str) -> None:
    nullable = {"availability", "availability_all", "worst_group", "worst_availability", "met", "mean", "peak", "cv"}
    nullable |= {"gini", "top_topic", "top_share", "rate", "from_address", "gap_ms"}
    with_nulls = [{k: None if k in nullable else v for k, v in row.items()} for row in getattr(FLEET, rows)]
    changed: dict[str, Any] = {rows: with_nulls}
    assert "—" in render(replace(FLEET, **changed))


def test_the_definitions_contain_the_thresholds_of_the_report() -> None:
    page = render(replace(FLEET, thresholds=Thresholds(objective=0.999, flap_ms=90_000)))
    assert "99.9 % of the time" in page
    assert "shorter than 1 min 30 s" in page


def test_times_outside_the_calendar_are_shown_in_milliseconds() -> None:
    beyond = 10**18
    row = {**FLEET.anomalies[0], "from_ms": beyond, "to_ms": beyond}
    assert f"{beyond} ms" in render(replace(FLEET, anomalies=[row]))


def test_a_window_of_one_millisecond_is_drawn() -> None:
    window = Window(START_MS, START_MS + 1)
    bands = [Band("c", "b", 0, UP, START_MS, START_MS + 1)]
    row = {**FLEET.availability_by_seat[0], "cluster": "c", "broker": "b", "broker_id": 0}
    read(render(replace(EMPTY, window=window, bands=bands, availability_by_seat=[row])))


def test_rendering_imports_neither_lake_nor_store() -> None:
    script = (
        "import sys, routebook_pipeline.report.page\n"
        "print([name for name in ('deltalake', 'redis', 'pyarrow', 'routebook') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_commands_on_the_page_exist() -> None:
    named = re.findall(r"<code>routebook pipeline run (\S+)(?: --by (\S+))? --namespace production --from", PAGE)
    assert len(named) >= 8
    for question, level in named:
        assert question in QUESTIONS
        assert not level or level in QUESTIONS[question].levels
