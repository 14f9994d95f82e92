"""The console of a fleet with 10,000 topics."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Visit, register, serving
from tests.runtime.running import Running

pytestmark = pytest.mark.slow
GROUPS, TOPICS_A_GROUP = 20, 500


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("scale")) as running:
        for group in range(GROUPS):
            topics = [f"orders-{group * TOPICS_A_GROUP + at:05d}" for at in range(TOPICS_A_GROUP)]
            register(running, f"large-{group:02d}", *topics)
        yield running


def test_10_000_topics_are_searched_by_keyboard(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open("/console/")
    visitor.wait_until_live()
    expect(page.locator("main")).to_contain_text("10,000")
    page.keyboard.press("/")
    page.keyboard.type("0998")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/topics?q=0998")
    expect(page.locator("tbody tr")).to_have_count(11)
    expect(page.locator("tbody tr").first).to_contain_text("orders-00998")
    page.keyboard.press("/")
    page.keyboard.type("09987")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/topic?name=orders-09987")
    expect(page.locator("#route tbody tr")).to_contain_text("large-19")


def test_a_list_of_10_000_topics_is_shown_in_pages(visit: Visit) -> None:
    page = visit().open("/console/topics")
    expect(page.locator(".pager")).to_contain_text("10,000 found")
    expect(page.locator("tbody tr")).to_have_count(100)
    page.get_by_role("link", name="next page").click()
    expect(page.locator("tbody tr").first).to_contain_text("orders-00100")


def test_a_change_of_a_large_fleet_appears_on_its_pages(visit: Visit, service: Running) -> None:
    visitor = visit()
    page = visitor.open("/console/broker?name=large-07")
    visitor.wait_until_live()
    expect(page.locator("#topic-list .pager")).to_contain_text("500 found")
    register(service, "large-07", "added-later")
    expect(page.locator("#topic-list .pager")).to_contain_text("501 found")


def test_an_action_on_a_large_group_lists_the_first_topics_and_counts_all(visit: Visit, service: Running) -> None:
    page = visit().open("/console/actions/write-permission?name=large-03&writable=false")
    expect(page.locator("#changes li")).to_have_count(201)
    expect(page.locator("#changes li").last).to_have_text("and 300 more")
    page.get_by_label("To confirm, type").fill("large-03")
    page.locator("form.confirm button").click()
    expect(page.locator("#result .kind")).to_have_text(["write-permission"])
    assert service.get("/v1/topics/orders-01999").json()["queues"]["large-03"]["perm"] == 4
