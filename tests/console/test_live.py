"""Pages are live and truthful: changes appear within a second, and doubt is shown."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.conftest import CLUSTER, Visit, register, remove, serving
from tests.runtime.running import Running, processes
from tests.support.waiting import wait_until


def test_a_change_appears_within_a_second(visit: Visit, service: Running) -> None:
    register(service, "live-a", "live-topic")
    overview, topic, timeline = visit(), visit(), visit()
    overview.open("/console/")
    topic.open("/console/topic?name=live-topic")
    timeline.open("/console/changes")
    for one in (overview, topic, timeline):
        one.wait_until_live()
    before = int(overview.page.locator("#brokers-alive").inner_text())
    register(service, "live-b", "live-topic")
    began = time.monotonic()
    expect(overview.page.locator("#brokers-alive")).to_have_text(str(before + 1))
    expect(topic.page.locator("#route tbody tr")).to_have_count(2)
    expect(timeline.page.locator("#timeline li").first).to_contain_text("live-b")
    # One second, and what a busy machine adds to three pages.
    assert time.monotonic() - began < 3
    remove(service, "live-b")
    expect(topic.page.locator("#route tbody tr")).to_have_count(1)


def test_a_paused_timeline_continues_with_what_it_missed(visit: Visit, service: Running) -> None:
    visitor = visit()
    page = visitor.open("/console/changes")
    visitor.wait_until_live()
    page.click("#pause")
    register(service, "paused-a", "paused-topic")
    expect(page.locator("#waiting")).to_have_text("new entries are waiting")
    assert page.locator("#timeline").get_by_text("paused-a").count() == 0
    page.click("#pause")
    expect(page.locator("#timeline li").first).to_contain_text("paused-a")


@pytest.mark.slow
def test_an_empty_console_names_the_command_for_a_simulated_fleet(visit: Visit, tmp_path: Path) -> None:
    with serving(tmp_path) as empty:
        page = visit(empty.http).open("/console/")
        expect(page.locator(".empty")).to_contain_text("routebook simulate")


@pytest.fixture
def two_workers(tmp_path: Path) -> Iterator[Running]:
    with serving(tmp_path, "--workers", "2") as running:
        yield running


@pytest.mark.slow
def test_a_lost_connection_is_shown_within_three_seconds_and_nothing_is_missed(
    visit: Visit, two_workers: Running
) -> None:
    register(two_workers, "first", "lost-topic")
    visitor = visit(two_workers.http)
    page = visitor.open("/console/topic?name=lost-topic")
    visitor.wait_until_live()
    workers = two_workers.children("worker")
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    page.wait_for_selector("#connection[data-state=lost]", timeout=10_000)
    assert time.monotonic() - began < 3
    expect(page.locator("#connection-text")).to_contain_text("Trying again")
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    visitor.wait_until_live()
    register(two_workers, "second", "lost-topic")
    expect(page.locator("#route tbody tr")).to_have_count(2)


@pytest.mark.slow
def test_a_page_resumes_at_another_worker_when_its_worker_is_killed(visit: Visit, two_workers: Running) -> None:
    register(two_workers, "first", "moved-topic")
    visitor = visit(two_workers.http)
    page = visitor.open("/console/topic?name=moved-topic")
    visitor.wait_until_live()
    shown = page.locator("#connection-text").inner_text()
    pid = int(re.search(r"\.(\d+)\.[0-9a-f]{6}", shown).group(1))  # type: ignore[union-attr]
    os.kill(pid, signal.SIGKILL)
    register_until_accepted(two_workers, "second", "moved-topic")
    expect(page.locator("#route tbody tr")).to_have_count(2)
    visitor.wait_until_live()
    assert f".{pid}." not in page.locator("#connection-text").inner_text()


def register_until_accepted(service: Running, broker: str, topic: str) -> None:
    """A request may meet the socket of the worker that was killed."""

    def is_accepted() -> bool:
        try:
            register(service, broker, topic)
        except OSError:
            return False
        except Exception as error:
            return "status" in str(error)
        return True

    wait_until(is_accepted, "a worker takes the registration")


@pytest.mark.slow
def test_the_workers_agree_in_one_line(visit: Visit, two_workers: Running) -> None:
    register(two_workers, "first", "agreed-topic")
    page = visit(two_workers.http).open("/console/")
    expect(page.locator("#agreement.good")).to_contain_text("All 2 workers agree")


@pytest.mark.slow
def test_data_from_memory_are_marked_until_the_store_is_back(visit: Visit, tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        register(service, "stale-a", "stale-topic")
        visitor = visit(service.http)
        page = visitor.open("/console/topic?name=stale-topic")
        visitor.wait_until_live()
        stores = [pid for pid, _, command in processes() if pid in service.descendants() and "valkey" in command]
        assert stores
        for pid in stores:
            os.kill(pid, signal.SIGSTOP)
        page.wait_for_selector("#connection[data-state=stale]")
        expect(page.locator("#stale-note")).to_contain_text("has not reached the store")
        expect(page.locator("#route tbody tr")).to_have_count(1)
        for pid in stores:
            os.kill(pid, signal.SIGCONT)
        visitor.wait_until_live()
        expect(page.locator("#stale-note")).to_have_count(0)


def test_a_group_page_shows_its_outage(visit: Visit, service: Running) -> None:
    register(service, "outage-a", "outage-topic")
    visitor = visit()
    page = visitor.open("/console/broker?name=outage-a")
    visitor.wait_until_live()
    remove(service, "outage-a")
    expect(page.locator("#group .alarm.bad")).to_contain_text("No broker of this group is registered")
    expect(page.locator("#outages tbody")).to_contain_text("still away")
    register(service, "outage-a", "outage-topic")
    expect(page.locator("#outages tbody")).not_to_contain_text("still away")
    assert CLUSTER in page.locator("#outages tbody").inner_text()
