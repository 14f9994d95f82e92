"""The five questions of docs/console.md, each answered in the console alone.

ROUTEBOOK_TEST_SCREENSHOTS=docs/images writes the pictures of the document.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Visit, register, remove, serving
from tests.console.test_actions import create_identity
from tests.runtime.running import Running
from tests.support.waiting import wait_until

PICTURES = os.environ.get("ROUTEBOOK_TEST_SCREENSHOTS", "")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two workers, and a fleet on which things happen."""
    flags = ("--workers", "2", "--scan-not-active-broker-interval-ms", "500")
    with serving(tmp_path_factory.mktemp("walkthroughs"), *flags) as running:
        for group in ("payments-a", "payments-b", "stock-a"):
            topics = ["invoices", "refunds"] if group.startswith("payments") else ["stock-levels"]
            register(running, group, *topics, f"audit-{group}")
            register(running, group, *topics, f"audit-{group}", broker_id=1)
        yield running


def take_picture(page: Page, name: str, height: int = 620) -> None:
    if PICTURES:
        page.mouse.move(0, 0)
        page.wait_for_timeout(2600)
        clip = {"x": 0, "y": 0, "width": 1280, "height": height}
        page.screenshot(path=Path(PICTURES) / f"console-{name}.png", clip=clip, full_page=True)  # type: ignore[arg-type]


def test_which_broker_died_and_for_how_long(visit: Visit, service: Running) -> None:
    register(service, "ledger-a", "ledger", timeout_ms=1000)
    register(service, "ledger-b", "ledger", timeout_ms=1000)
    visitor = visit()
    page = visitor.open("/console/")
    visitor.wait_until_live()
    expect(page.locator("#brokers-missing")).to_have_text("2")
    register(service, "ledger-b", "ledger")
    expect(page.locator("#brokers-missing")).to_have_text("1")
    expect(page.locator("#agreement.good")).to_be_visible()
    take_picture(page, "overview", 800)
    page.get_by_text("Brokers missing").click()
    away = page.locator("tbody tr", has_text="ledger-a")
    expect(away).to_contain_text("still away")
    expect(away).to_contain_text("expired")
    back = page.locator("tbody tr", has_text="ledger-b")
    expect(back).not_to_contain_text("still away")
    assert re.fullmatch(r"\d[\d.]* (ms|s|min .*)", back.locator("td").nth(5).inner_text())
    take_picture(page, "outages", 420)


def test_which_caller_deleted_a_topic(visit: Visit, service: Running) -> None:
    register(service, "orders-a", "orders", "orders-audit")
    token = create_identity(service, "deploy-bot", "operator")
    answer = httpx.delete(
        f"{service.http}/v1/topics/orders", headers={"Authorization": f"Bearer {token}"}, timeout=10, trust_env=False
    )
    answer.raise_for_status()
    visitor = visit()
    page = visitor.open("/console/")
    visitor.wait_until_live()
    page.keyboard.press("/")
    page.keyboard.type("orders-x")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=orders-x")
    page.goto(f"{service.http}/console/changes?topic=orders")
    first = page.locator("#timeline li").first
    expect(first).to_contain_text("delete-topic")
    expect(first.locator(".actor")).to_contain_text("deploy-bot")
    take_picture(page, "deleted", 480)
    first.locator(".when").click()
    expect(page.locator("main")).to_contain_text("127.0.0.1:")


def test_why_a_producer_got_no_route(visit: Visit, service: Running) -> None:
    register(service, "mail-a", "newsletters")
    remove(service, "mail-a")
    visitor = visit()
    page = visitor.open("/console/topics?q=newsletters")
    page.get_by_text("Why is there no route for it?").click()
    expect(page.locator("#reason")).to_contain_text("Its last broker group, mail-a, has no broker any more")
    expect(page.locator("#route")).to_contain_text("operator")
    take_picture(page, "no-route", 560)
    service.put("/v1/brokers/stock-a/write-permission", {"writable": False}).raise_for_status()
    page = visitor.open("/console/topic?name=stock-levels")
    expect(page.locator("#route .alarm.bad")).to_contain_text("no group allows writing")
    take_picture(page, "route", 640)
    service.put("/v1/brokers/stock-a/write-permission", {"writable": True}).raise_for_status()


def test_whether_all_workers_agree(visit: Visit, service: Running) -> None:
    visitor = visit()
    page = visitor.open("/console/")
    visitor.wait_until_live()
    # The other worker reports the change of the test before with its next renewal of its lease.
    expect(page.locator("#agreement.good")).to_contain_text("All 2 workers agree")
    # Read in one step, because the page may be updated between two.
    page.wait_for_function(
        """() => {
            const cells = [...document.querySelectorAll("#workers tbody tr td:nth-child(6)")];
            const digests = cells.map(cell => cell.innerText);
            const isGood = document.querySelector("#agreement.good") !== null;
            return isGood && digests.length === 2 && digests[0] === digests[1];
        }"""
    )


def test_what_changed_between_two_instants(visit: Visit, service: Running) -> None:
    register(service, "before-a", "kept", "resized", queues=4)
    wait_until(lambda: service.get("/v1/topics/kept").status_code == 200, "the broker is registered")
    time.sleep(1.1)  # The form has whole seconds.
    began = time.time()
    time.sleep(1.1)
    register(service, "before-a", "kept", "resized", "added", queues=4)
    register(service, "before-a", "resized", queues=8)
    register(service, "after-a", "kept", queues=4)
    page = visit(timezone_id="Europe/Berlin").open("/console/")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/console/difference")
    moment = page.evaluate(
        "s => new Date(s * 1000 - new Date(s * 1000).getTimezoneOffset() * 60000).toISOString().slice(0, 19)", began
    )
    page.get_by_label("From", exact=True).fill(moment)
    page.get_by_text("Compare", exact=True).click()
    expect(page.locator("#summary")).to_have_text("1 broker and 3 topic entries differ.")
    rows = page.locator("tbody tr").all_inner_texts()
    assert any("after-a" in row and "not registered" in row for row in rows)
    assert any("added" in row and "none" in row for row in rows)
    assert any("resized" in row and "4 read" in row and "8 read" in row for row in rows)
    take_picture(page, "difference", 620)
