"""The page in a real browser, in both colour schemes: no console messages, no requests, and sufficient contrast."""

from pathlib import Path

import pytest

from routebook_pipeline.report.page import render
from tests.pipeline.report.sample import fleet
from tests.support.chromium import CHROMIUM, NO_CHROMIUM, Page, Scheme, chromium_page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)

CONTRASTS = """(() => {
  const light = c => c.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const parts = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const behind = one => {
    for (; one; one = one.parentElement) {
      const found = parts(getComputedStyle(one).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const faults = new Set();
  for (const one of document.querySelectorAll('body *')) {
    if (![...one.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    const style = getComputedStyle(one), svg = one.closest('svg');
    if (one.tagName === 'title' || svg && one.tagName === 'tspan') continue;
    const [a, b] = [light(parts(svg ? style.fill : style.color).slice(0, 3)), light(behind(svg || one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faults.add(one.tagName + '.' + (one.getAttribute('class') || '') + ' ' + ratio.toFixed(2));
  }
  return [...faults];
})()"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(fleet()), encoding="utf-8")
    return path


def background(page: Page) -> int:
    """The brightness of the background, 0 to 255."""
    red = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    return int(red)


@pytest.mark.parametrize(("scheme", "is_light"), [("light", True), ("dark", False)])
def test_both_colour_schemes_render_without_console_messages(report: Path, scheme: Scheme, is_light: bool) -> None:
    with chromium_page(report.as_uri(), scheme) as page:
        assert (background(page) > 127) is is_light
        assert page.evaluate("document.querySelectorAll('svg rect').length") > 100
        assert page.evaluate(CONTRASTS) == []
        assert page.take_screenshot(600)[:4] == b"\x89PNG"
        assert page.complaints == []
        assert page.requests == []


def test_a_narrow_screen_does_not_scroll_sideways(report: Path) -> None:
    with chromium_page(report.as_uri(), width=390) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_print_version_is_white_and_shows_every_table(report: Path) -> None:
    a4 = 720
    with chromium_page(report.as_uri(), "dark", width=a4) as page:
        page.command(
            "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
        )
        assert background(page) == 255
        assert page.evaluate("document.documentElement.scrollWidth") <= a4
        heights = page.evaluate(
            "[...document.querySelectorAll('table')].map(table => table.getBoundingClientRect().height)"
        )
        assert min(heights) > 0


def test_the_checks_of_this_module_detect_faults(tmp_path: Path) -> None:
    """A faulty page, to prove that the checks above can fail."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<body style='background:#fff'><p style='color:#ccc'>pale</p>"
        "<img src='absent.png'><script>console.error('x')</script>"
    )
    with chromium_page(bad.as_uri()) as page:
        assert page.complaints
        assert [address.rpartition("/")[2] for address in page.requests] == ["absent.png"]
        assert page.evaluate(CONTRASTS) == ["P. 1.61"]
