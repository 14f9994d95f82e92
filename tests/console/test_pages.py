"""Every page: without faults, accessible in both colour schemes, on narrow screens, by keyboard, with hostile names."""

import re
from pathlib import Path
from urllib.parse import quote

import axe_playwright_python
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Visit, register, remove
from tests.runtime.running import Running

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
PAGES = [
    "",
    "clusters",
    "brokers",
    "broker?name=page-broker",
    "outages",
    "topics",
    "topic?name=page-topic",
    "topic?name=missing-topic",
    "changes",
    "difference?from=1h",
    "difference",
    "key-values",
    "settings",
    "connections",
    "limits",
    "reports",
    "sign-in",
    "actions/delete-topic?topic=page-topic",
]


@pytest.fixture(scope="module", autouse=True)
def fleet(service: Running) -> None:
    register(service, "page-broker", "page-topic", "page-other")
    register(service, "page-broker", "page-topic", broker_id=1)
    register(service, "gone-broker", "gone-topic")
    remove(service, "gone-broker")


def violations(page: Page) -> list[str]:
    page.evaluate(AXE)
    found = page.evaluate("rules => axe.run(document, {runOnly: rules}).then(result => result.violations)", RULES)
    return [
        f"{one['id']}: {node['html'][:150]} {node['failureSummary'][:200]}" for one in found for node in one["nodes"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_fault_and_is_accessible_in_both_colours(visit: Visit, path: str) -> None:
    visitor = visit()
    page = visitor.open(f"/console/{path}")
    visitor.wait_until_live()
    expect(page.locator("h1")).to_be_visible()
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page) == []


@pytest.mark.parametrize("path", ["", "topic?name=page-topic"])
def test_an_important_page_is_accessible(visit: Visit, path: str) -> None:
    visitor = visit()
    page = visitor.open(f"/console/{path}")
    visitor.wait_until_live()
    assert violations(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [640, 375], ids=["zoom of 200 %", "telephone"])
def test_no_page_needs_scrolling_to_the_side(visit: Visit, width: int) -> None:
    """A window of 1280 at 200 % has 640 pixels of CSS."""
    visitor = visit(viewport={"width": width, "height": 700})
    too_wide = [
        path
        for path in PAGES
        if visitor.open(f"/console/{path}").evaluate("document.documentElement.scrollWidth - innerWidth") > 0
    ]
    assert too_wide == []


HOSTILE = '<img src=x onerror="alert(1)">\'"><script>alert(2)</script>{{7*7}}'


def test_hostile_names_are_text_on_every_page(visit: Visit, service: Running) -> None:
    topic, broker = f"topic-{HOSTILE}", f"broker-{HOSTILE}"
    address = {"address": "127.0.0.77:10911", "topics": {topic: {}}, "timeout_ms": 3_600_000, "zone": HOSTILE[:60]}
    path = (
        f"/v1/clusters/{quote(HOSTILE.replace('/', ''), safe='')}/brokers/{quote(broker.replace('/', ''), safe='')}/0"
    )
    service.put(path, address).raise_for_status()
    named = broker.replace("/", "")
    visitor = visit()
    pages = [
        "",
        "clusters",
        "brokers",
        f"broker?name={quote(named)}",
        "topics?q=topic-%3C",
        f"topic?name={quote(topic)}",
    ]
    pages += ["changes", f"changes?topic={quote(topic)}", "difference?from=1h", f"topic?name={quote(HOSTILE)}"]
    pages += [
        f"actions/delete-topic?topic={quote(topic)}",
        f"actions/write-permission?name={quote(named)}&writable=false",
    ]
    pages += [f"brokers?cluster={quote(HOSTILE)}", f"topic?name={quote(topic)}&at={quote(HOSTILE)}"]
    for path in pages:
        page = visitor.open(f"/console/{path}")
        assert page.locator("img[src=x]").count() == 0, path
        assert "49" not in page.title(), path
    page = visitor.open(f"/console/topic?name={quote(topic)}")
    expect(page.locator("h1")).to_contain_text(topic)
    service.delete(path_of_topic(topic)).raise_for_status()


def path_of_topic(topic: str) -> str:
    return f"/v1/topics/{quote(topic, safe='')}"


def test_keys_lead_through_the_console(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open("/console/")
    visitor.wait_until_live()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/console/topics")
    page.keyboard.press("/")
    page.keyboard.type("page-o")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.url.endswith("q=page-o")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/topic?name=page-other")


def test_times_are_in_the_zone_of_the_viewer_with_utc_on_hover(visit: Visit) -> None:
    page = visit(timezone_id="Asia/Tokyo").open("/console/changes")
    first = page.locator("time").first
    utc = first.get_attribute("title") or ""
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC", utc)
    assert (int(first.inner_text()[11:13]) - int(utc[11:13])) % 24 == 9


def test_the_chosen_colours_stay(visit: Visit) -> None:
    visitor = visit(color_scheme="light")
    visitor.open("/console/").click("#theme")
    page = visitor.open("/console/topics")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_an_old_link_to_a_time_before_the_history_says_so(visit: Visit) -> None:
    page = visit().open("/console/topic?name=page-topic&at=2020-01-01T00:00:00Z")
    expect(page.locator(".alarm")).to_contain_text("The history begins after that time")


def test_the_topic_as_it_was_is_reached_from_its_history(visit: Visit, service: Running) -> None:
    register(service, "past-broker", "past-topic", queues=3)
    register(service, "past-broker", "past-topic", queues=5)
    page = visit().open("/console/topic?name=past-topic")
    expect(page.locator("#route tbody")).to_contain_text("5")
    page.get_by_text("the route after it").last.click()
    expect(page.locator(".past")).to_be_visible()
    expect(page.locator("tbody tr td").nth(2)).to_have_text("3")
