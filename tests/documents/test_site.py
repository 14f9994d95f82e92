"""The site has every page, renders it as code hosts do, and requests nothing from another host (`make docs`)."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from documentation.site import (
    CONFIG,
    ROOT,
    SITE,
    SOURCE,
    expand_navigation,
    foreign_requests,
    page_requests,
    script_requests,
    stage,
    staged_page,
    style_requests,
)
from tests.support.chromium import CHROMIUM, NO_CHROMIUM, chromium_page

TOOLS = ROOT / ".venv" / "docs-tools"
COUNTED = {"li", "ul", "ol", "tr", "pre", "blockquote", "img", "h1", "h2", "h3"}
needs_tools = pytest.mark.skipif(not TOOLS.is_dir(), reason="`make docs` has not installed mkdocs")


# Staging


def test_every_page_that_the_index_links_is_staged(tmp_path: Path) -> None:
    stage(tmp_path)
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")}


def test_links_to_files_that_are_no_pages_lead_to_copies_that_a_browser_shows(tmp_path: Path) -> None:
    page = ROOT / "docs" / "an example.md"
    page_text = "[alerts](../helm/routebook/files/alerts.yaml#x), [p](metrics.md#scraping), [c](https://a.example/b.py)"
    folder_text = " [chart](../helm/routebook), [store](../service/routebook/store)"
    shown = f"{page_text}{folder_text}\n\n```sh terminal\nmake up [x](Makefile)\n```\n"
    try:
        page.write_text(shown)
        text, linked = staged_page(page)
    finally:
        page.unlink()
    assert "[alerts](../helm/routebook/files/alerts.yaml.txt), [p](metrics.md#scraping)" in text
    assert "[c](https://a.example/b.py)" in text
    assert "[chart](../helm/routebook/README.md), store\n" in text
    assert "```sh\nmake up [x](Makefile)\n```" in text
    assert [path.name for path in linked] == ["alerts.yaml", "metrics.md", "README.md"]


def test_a_pattern_in_the_navigation_stands_for_the_pages_that_are_not_listed(tmp_path: Path) -> None:
    for name in ("a.md", "b.md", "c.txt"):
        (tmp_path / name).write_text("")
    navigation: list[object] = [{"All": ["b.md", "*"]}]
    assert expand_navigation(navigation, tmp_path, {"b.md"}) == [{"All": ["b.md", "a.md"]}]


# Requests to other hosts


@pytest.mark.parametrize(
    "text",
    [
        '<img src="https://a.example/x.png">',
        '<link rel="preconnect" href="https://a.example">',
        '<link rel="stylesheet" href="//a.example/x.css">',
        "<style>@import 'https://a.example/x.css';</style>",
        '<p style="background: url(https://a.example/x.png)">',
        '<script>fetch("https://a.example/x")</script>',
        '<object data="https://a.example/x.svg"></object>',
    ],
)
def test_what_a_page_would_fetch_from_another_host_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.html").write_text(text)
    assert len(foreign_requests(tmp_path)) == 1


def test_links_that_a_reader_follows_and_local_files_are_no_requests_to_other_hosts(tmp_path: Path) -> None:
    (tmp_path / "x.html").write_text('<a href="https://a.example">x</a><img src="x.png"><link rel="icon" href="x.ico">')
    (tmp_path / "x.css").write_text("/* https://a.example */ p { background: url(x.png) }")
    (tmp_path / "x.js").write_text("/* https://a.example */\nlet ns = 'http://www.w3.org/2000/svg'")
    assert foreign_requests(tmp_path) == []


def test_addresses_in_styles_and_scripts_are_found() -> None:
    assert style_requests("p{background:url('https://a.example/x')}") == ["https://a.example/x"]
    assert script_requests('load("https://a.example/x.js")') == ["https://a.example/x.js"]
    assert page_requests('<img src="x.png">') == ["x.png"]


# The whole site


@pytest.fixture(scope="module")
def site() -> Path:
    env = {**os.environ, "PYTHONPATH": f"{TOOLS}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "documentation.site"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert done.stderr == "", "the build printed a warning"
    return SITE


class _Elements(HTMLParser):
    def __init__(self, *, is_inside: bool) -> None:
        super().__init__()
        self._is_inside = is_inside
        self.counts = Counter[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_inside |= tag == "article"
        if self._is_inside and tag in COUNTED:
            self.counts[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._is_inside &= tag != "article"


@needs_tools
@pytest.mark.slow
def test_a_page_has_the_same_lists_tables_and_blocks_as_on_a_code_host(site: Path) -> None:
    """mkdocs' Markdown wants four blanks where code hosts want two or three, and then shows text as one paragraph."""
    host = MarkdownIt("commonmark").enable("table")
    different = []
    for page in sorted(SOURCE.rglob("*.md")):
        built = site / page.relative_to(SOURCE).with_suffix(".html")
        built = built.with_name("index.html") if page.name == "README.md" else built
        on_host, here = _Elements(is_inside=True), _Elements(is_inside=False)
        on_host.feed(host.render(page.read_text()))
        here.feed(built.read_text())
        if on_host.counts != here.counts:
            different.append((str(page.relative_to(SOURCE)), dict(on_host.counts), dict(here.counts)))
    assert different == []


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the name that the class gives it
        """Prints nothing."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@needs_tools
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
@pytest.mark.parametrize("page", ["index.html", "docs/runbook.html", "docs/decisions/index.html"])
def test_a_browser_requests_nothing_from_another_host(address: str, page: str) -> None:
    with chromium_page(f"{address}/{page}") as opened:
        assert opened.evaluate("document.querySelectorAll('article h1').length") == 1
        assert [request for request in opened.requests if not request.startswith(address)] == []
        assert opened.complaints == []


@needs_tools
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[x](#no-such-heading)", "no-such-heading"),
        ("[x](no-such-page.md)", "no-such-page.md"),
    ],
)
def test_a_broken_link_or_anchor_stops_the_build(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "README.md").write_text(f"# Title\n\n{text}\n")
    config = CONFIG.read_text().partition("\nnav:\n")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{config}\ndocs_dir: pages\nsite_dir: site\nnav: [README.md]\n")
    env = {**os.environ, "PYTHONPATH": str(TOOLS), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(tmp_path / "mkdocs.yml")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert complaint in done.stderr
