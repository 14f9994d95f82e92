"""The console in a real browser: Debian's Chromium, driven by Playwright, against real workers.

Tests of one module share a service and a browser; each has a page of its own, and broker names of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect, sync_playwright

from tests.runtime.running import Running
from tests.support.chromium import CHROMIUM, NO_CHROMIUM

TOKEN = "the-admin-token-of-the-console-tests"
BEHIND_A_PROXY = {"X-Forwarded-For": "192.0.2.7"}
"""With it, a client on this machine is not trusted more than any other."""
CLUSTER = "demo"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM))
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@dataclass
class Visitor:
    """One page of the browser, and everything that must not happen on it."""

    page: Page
    base: str
    faults: list[str] = field(default_factory=list)

    def open(self, path: str, **options: Any) -> Page:
        self.page.goto(self.base + path, **options)
        return self.page

    def wait_until_live(self) -> None:
        self.page.wait_for_selector("#connection[data-state=live]", timeout=20_000)

    def watch(self) -> None:
        """Errors of scripts, violations of the content security policy, and requests to other hosts."""
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on("dialog", self._dismiss)
        self.page.on("console", self._note_message)
        self.page.on("request", self._note_request)

    def _dismiss(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_message(self, message: Any) -> None:
        if message.type == "error" and "status of" not in message.text and "net::ERR" not in message.text:
            self.faults.append(f"console: {message.text}")

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith(self.base):
            self.faults.append(f"another host: {request.url}")


Visit = Callable[..., Visitor]

expect.set_options(timeout=20_000)
"""As `set_default_timeout` below. Five seconds, the default, are too short on a machine with other work."""


@pytest.fixture
def visit(browser: Browser, service: Running) -> Iterator[Visit]:
    """`visit(**options of the browser's context)` opens a page. At the end, no page may have had a fault."""
    contexts: list[BrowserContext] = []
    visitors: list[Visitor] = []

    def start(base: str = "", **options: Any) -> Visitor:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        contexts.append(context)
        visitor = Visitor(context.new_page(), base or service.http)
        visitor.page.set_default_timeout(20_000)
        visitor.watch()
        visitors.append(visitor)
        return visitor

    yield start
    for context in contexts:
        context.close()
    assert [fault for visitor in visitors for fault in visitor.faults] == []


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Running]:
    flags = ("--admin-token", TOKEN, "--hold-minimum", "1000", *flags)
    with Running("up", *flags, folder=folder) as running:
        yield running
        if running.process.poll() is None:
            running.stop()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("console")) as running:
        yield running


def register(service: Running, broker: str, *topics: str, broker_id: int = 0, queues: int = 8, **body: Any) -> None:
    """Over HTTP. A test chooses what matters to it."""
    fields = {
        "address": f"127.0.0.{11 + broker_id}:{10_000 + sum(broker.encode()) % 20_000}",
        "topics": {topic: {"read_queues": queues, "write_queues": queues} for topic in topics},
        "timeout_ms": 3_600_000,
        **body,
    }
    service.put(f"/v1/clusters/{CLUSTER}/brokers/{broker}/{broker_id}", fields).raise_for_status()


def remove(service: Running, broker: str, broker_id: int = 0) -> None:
    service.delete(f"/v1/clusters/{CLUSTER}/brokers/{broker}/{broker_id}").raise_for_status()
