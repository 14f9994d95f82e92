"""Rules for all files: modules are not too long, links have a target, nothing names a path of one machine."""

import re
from pathlib import Path

import pytest

import routebook
from tests.architecture.sources import ROOT, python_files, tracked_files

MAX_MODULE_LINES = 600
MAX_MODULES = {"service": 190, "pipeline": 90}
THIN_MODULE_LINES = 40
MAX_THIN_MODULES = 20
"""Nearly all of the service's thin modules are the `__init__` of a package."""
DOCUMENTS = [path for path in tracked_files() if path.suffix == ".md"]
DOCS = ROOT / "docs"
DECISIONS = sorted(path for path in DOCUMENTS if path.match("docs/decisions/[0-9]*.md"))
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|tmp/bash_jobs)(?:/[\w.-]+|\b(?!/))")
"""Folders that exist on some machines only."""
REGISTRY_HOSTS = re.compile(r"https?://(?!pypi\.org\b)[\w.:-]+/(?:[\w.-]+/)*simple\b|--(?:extra-)?index-url|UV_INDEX")
NOT_TEXT = {".png", ".gif", ".jpg", ".ico", ".woff2", ".rdb", ".aof"}
LINK = re.compile(r"\[[^\]\n]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")


PYTHON = python_files("service", "tests", "benchmarks", "documentation")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def our_texts() -> list[Path]:
    """Without images, without third-party assets, and without this file, which has the patterns."""
    texts = [path for path in tracked_files() if path.suffix not in NOT_TEXT and "assets" not in path.parts]
    return [path for path in texts if path != Path(__file__).resolve()]


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_a_module_is_not_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_MODULE_LINES


@pytest.mark.parametrize("folder", MAX_MODULES)
def test_a_folder_has_few_modules(folder: str) -> None:
    """Every module more is another file to open on the way through a flow: extend the module of the subject first."""
    assert len(python_files(folder)) <= MAX_MODULES[folder]


def test_few_modules_are_thin() -> None:
    thin = [name_of(path) for path in python_files("service") if len(path.read_text().splitlines()) < THIN_MODULE_LINES]
    assert len(thin) <= MAX_THIN_MODULES, thin


def test_no_module_has_a_vague_name() -> None:
    """Names such as `utils` do not say what a module contains."""
    vague = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
    assert [path for path in python_files("service", "tests") if path.stem in vague] == []


def test_the_newest_entry_of_the_changelog_is_this_version() -> None:
    first = re.search(r"^## \[?v?(?P<version>\d[^\s\]]*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None, "CHANGELOG.md has no heading with a version"
    assert first["version"] == routebook.__version__


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, REGISTRY_HOSTS], ids=["machine paths", "registry hosts"])
def test_no_file_names_a_path_or_host_of_one_machine(pattern: re.Pattern[str]) -> None:
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:100]}"
        for path in our_texts()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_the_prose_of_a_document_is_wrapped(document: Path) -> None:
    """At 100 columns. Code, tables, headings, pictures and generated pages may be wider."""
    if "reference" in document.parts:
        pytest.skip("generated from the code")
    outside_code = re.sub(r"^ *```.*?^ *```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    wide = [line for line in outside_code.splitlines() if len(line) > 100 and " " in line[:100].strip()]
    assert [line for line in wide if not line.lstrip().startswith(("|", "#", "<", "![", "[!"))] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_of_a_document_has_a_target(document: Path) -> None:
    assert [target for target in inner_links(document) if not has_target(document, target)] == []


def test_the_documents_index_links_every_page_but_single_decisions() -> None:
    """The decisions have an index of their own: docs/decisions/README.md."""
    index = DOCS / "README.md"
    linked = {(DOCS / target.partition("#")[0]).resolve() for target in inner_links(index)}
    pages = [path for path in DOCUMENTS if path.is_relative_to(DOCS) and path not in DECISIONS and path != index]
    assert [name_of(path) for path in pages if path.resolve() not in linked] == []


@pytest.mark.parametrize("decision", DECISIONS, ids=name_of)
def test_a_decision_has_a_date_a_status_and_the_usual_headings(decision: Path) -> None:
    text = decision.read_text()
    assert re.match(r"# \d{4} \S.+\n\n- Date: \d{4}-\d\d-\d\d\n- Status: \w", text), "title, date or status is missing"
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Options", "Decision", "Consequences"]


def test_the_index_of_decisions_has_every_page_with_its_title_and_date() -> None:
    index = (DOCS / "decisions/README.md").read_text()
    listed = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| (.+?) \| (\S+) \|$", index, re.MULTILINE)
    expected = []
    for path in DECISIONS:
        number, title, date = re.findall(r"# (\d{4}) (.+)\n\n- Date: (\S+)", path.read_text())[0]
        expected.append((number, path.name, title, date))
    assert listed == expected


def test_the_numbers_of_decisions_are_unique_and_a_missing_one_is_explained_in_the_index() -> None:
    listed = [int(path.name[:4]) for path in DECISIONS]
    numbers = set(listed)
    assert len(numbers) == len(listed)
    missing = set(range(1, max(numbers) + 1)) - numbers
    index = (DOCS / "decisions/README.md").read_text()
    assert [number for number in sorted(missing) if f"Number {number:04} is missing" not in index] == []


CODE_PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*\.(?:py|lua))`")
PLACES = ("", "service/routebook", "pipeline", "pipeline/routebook_pipeline", "lua")
"""Folders to which a path in a document may be relative, besides the document's own."""


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if path not in DECISIONS], ids=name_of)
def test_every_module_that_a_document_names_exists(document: Path) -> None:
    """Decisions are closed, so they may name modules of their time."""
    assert [named for named in CODE_PATH.findall(document.read_text()) if not is_there(named, document)] == []


def is_there(named: str, document: Path) -> bool:
    if "/" not in named:
        return any(path.name == named for path in tracked_files())
    return any((folder / named).is_file() for folder in [document.parent, *(ROOT / place for place in PLACES)])


def inner_links(document: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = [found["target"] for found in LINK.finditer(prose)]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def has_target(document: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (document.parent / name) if name else document
    if not file.exists():
        return False
    return not anchor or file.suffix != ".md" or anchor in anchors_of(file)


def anchors_of(document: Path) -> set[str]:
    """The anchors that code hosts make: lower case, hyphens for blanks, without punctuation."""
    headings = re.findall(r"^#{1,6} +(.+?)\s*$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
