"""Builds the documentation site into build/site: `make docs`.

The pages are copied with their folders, and with the files that they link, so relative links work unchanged. The build
stops when a file would request anything from another host, and at every warning of mkdocs: a broken link or anchor, or
a page that the navigation does not contain.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIG = Path(__file__).with_name("mkdocs.yml")
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"

FIRST_PAGES = ("README.md", "docs/README.md", "docs/decisions/README.md")
"""All other pages are linked from these, directly or not."""
SHOWN = {".png", ".svg", ".jpg", ".gif"}
"""Linked files that a browser shows. Others get the suffix .txt, since a browser would download them."""

LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<target>[^)\s]+)\)")
_FENCED = re.compile(r"^(?P<fence>`{3,}).*?^(?P=fence)$", re.MULTILINE | re.DOTALL)
_INFO_STRING = re.compile(r"^(```\w+) \w+$", re.MULTILINE)
_CODE_HOSTS = re.compile(r"https://(?:unpkg\.com|api\.github\.com|gitlab\.com)")
"""Hosts in the theme's scripts: of parts that these pages do not use, and that they could not reach."""


def stage(source: Path) -> None:
    """Copies the first pages, and all that they link, into `source`."""
    waiting, done = [ROOT / name for name in FIRST_PAGES], set[Path]()
    while waiting:
        page = waiting.pop()
        if page in done:
            continue
        done.add(page)
        text, linked = staged_page(page)
        _write(source / page.relative_to(ROOT), text)
        for file in linked:
            if file.suffix == ".md":
                waiting.append(file)
            else:
                staged = source / file.relative_to(ROOT)
                staged = staged if file.suffix in SHOWN else staged.with_name(f"{file.name}.txt")
                staged.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, staged)


def staged_page(page: Path) -> tuple[str, list[Path]]:
    """The text of a page for the site, and the files that it links."""
    linked: list[Path] = []

    def replace(found: re.Match[str]) -> str:
        name, _, anchor = found["target"].partition("#")
        if not name or re.match(r"[a-z]+:", found["target"]):
            return found[0]
        file = (page.parent / name).resolve()
        if file.is_dir():
            file, name = file / "README.md", f"{name.rstrip('/')}/README.md"
        if not file.is_file():
            # A folder without a page of its own. Other targets exist: tests/architecture checks that.
            return found["text"].removeprefix("[").removesuffix("]")
        linked.append(file)
        is_shown = file.suffix in SHOWN | {".md"}
        target = name + ("" if is_shown else ".txt") + (f"#{anchor}" if anchor and file.suffix == ".md" else "")
        return f"{found['text']}({target})"

    text = page.read_text()
    parts, end = [], 0
    for fence in _FENCED.finditer(text):
        # `sh terminal` marks a command that keeps running, for the tests only.
        parts += [LINK.sub(replace, text[end : fence.start()]), _INFO_STRING.sub(r"\1", fence[0])]
        end = fence.end()
    return "".join([*parts, LINK.sub(replace, text[end:])]), linked


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def expand_navigation(entries: list[object], source: Path, listed: set[str]) -> list[object]:
    """The navigation with the pages that a pattern stands for, without those that are listed by name."""
    expanded: list[object] = []
    for entry in entries:
        if isinstance(entry, dict):
            expanded += [{title: expand_navigation(inner, source, listed)} for title, inner in entry.items()]
        elif isinstance(entry, str) and "*" in entry:
            found = sorted(str(path.relative_to(source)) for path in source.glob(entry) if path.suffix == ".md")
            expanded += [name for name in found if name not in listed]
        else:
            expanded.append(entry)
    return expanded


def names_in(entries: list[object]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, dict):
            for inner in entry.values():
                yield from names_in(inner)
        elif isinstance(entry, str):
            yield entry


def write_config(source: Path, site: Path) -> Path:
    """The configuration for mkdocs, beside `source`."""
    import yaml  # noqa: PLC0415 only where the site is built: it is installed with mkdocs

    text, _, navigation = CONFIG.read_text().partition("\nnav:\n")
    entries = yaml.safe_load(f"nav:\n{navigation}")["nav"]
    expanded = expand_navigation(entries, source, set(names_in(entries)))
    paths = {"docs_dir": str(source), "site_dir": str(site), "nav": expanded}
    config = source.with_name("mkdocs.yml")
    _write(config, f"{text}\n{yaml.safe_dump(paths, sort_keys=False, allow_unicode=True)}")
    return config


class _Requests(HTMLParser):
    """What a browser fetches to show a page. It fetches the target of a link only when a reader follows the link."""

    _ATTRIBUTES = ("src", "srcset", "data", "poster", "action", "background")
    _FETCHED = frozenset(
        {"stylesheet", "icon", "preconnect", "dns-prefetch", "preload", "prefetch", "modulepreload", "manifest"}
    )

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.found += [values[name] for name in self._ATTRIBUTES if name in values]
        if tag == "link" and self._FETCHED & set(values.get("rel", "").split()):
            self.found.append(values.get("href", ""))
        if "style" in values:
            self.found += style_requests(values["style"])


def style_requests(text: str) -> list[str]:
    return re.findall(r"""url\(\s*["']?([^"')]+)""", text) + re.findall(r"""@import\s+["']([^"']+)""", text)


def script_requests(text: str) -> list[str]:
    """Addresses in the strings of a script. Addresses in comments and names of XML name spaces are not requested."""
    code = re.sub(r"/\*.*?\*/|^\s*//.*$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"""["'`]((?:https?:|wss?:)?//[\w.-]+\.\w+[^"'`]*)""", code)
    return [address for address in found if "//www.w3.org/" not in address]


def page_requests(text: str) -> list[str]:
    parser = _Requests()
    parser.feed(text)
    styles = re.findall(r"<style[^>]*>(.*?)</style>", text, re.DOTALL)
    scripts = re.findall(r"<script(?![^>]*\btype=\"application/json\")[^>]*>(.*?)</script>", text, re.DOTALL)
    return [
        *parser.found,
        *(one for s in styles for one in style_requests(s)),
        *(one for s in scripts for one in script_requests(s)),
    ]


def foreign_requests(site: Path) -> list[str]:
    """What the files of the site would fetch from another host, as "file: address"."""
    readers = {".html": page_requests, ".svg": page_requests, ".css": style_requests, ".js": script_requests}
    return [
        f"{path.relative_to(site)}: {address}"
        for path in sorted(site.rglob("*"))
        if path.suffix in readers
        for address in readers[path.suffix](path.read_text())
        if re.match(r"(?:[a-z]+:)?//", address, re.IGNORECASE)
    ]


def remove_unused_hosts(site: Path) -> None:
    """The theme can load diagrams and the counts of a repository from other hosts. These pages use neither."""
    for script in site.rglob("*.js"):
        text = script.read_text()
        if _CODE_HOSTS.search(text):
            script.write_text(_CODE_HOSTS.sub("", text))


def main() -> None:
    for folder in (SOURCE, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    stage(SOURCE)
    config = write_config(SOURCE, SITE)
    # The theme advertises its successor at each build, in place of which docs/decisions/0058 says what follows.
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(config)]
    built = subprocess.run(command, check=False, env=env)
    if built.returncode != 0:
        sys.exit(
            f"The site was not built. Correct what mkdocs reports above; {CONFIG.relative_to(ROOT)} has the navigation."
        )
    remove_unused_hosts(SITE)
    if foreign := foreign_requests(SITE):
        sys.exit("These files would request something from another host:\n" + "\n".join(foreign))
    pages = sum(1 for path in SITE.rglob("*.html") if path.name != "404.html")
    print(f"{pages} pages in {SITE.relative_to(ROOT)}. To read them: python3 -m http.server --directory build/site")


if __name__ == "__main__":
    main()
