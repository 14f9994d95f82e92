"""A word that the glossary replaced must not come back as an identifier.

The one list is the table "Replaced words" of docs/glossary.md; the rules of its columns stand above it.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, tracked_files

GLOSSARY = ROOT / "docs/glossary.md"
FOLDERS = ("service", "pipeline", "lua", "tests", "benchmarks")
PRODUCT = ("service/", "pipeline/", "lua/")
RULES = ("part", "whole", "product")
CODE = [
    path
    for path in tracked_files()
    if path.suffix in {".py", ".lua"}
    and path.relative_to(ROOT).parts[0] in FOLDERS
    and path != Path(__file__).resolve()  # it has planted examples
]
NAME_LIKE = re.compile(r"[A-Za-z_][\w.:{}-]*")
"""A string that is the name of a setting, a metric, a kind, a key, a field or a slot, and not a sentence."""
LUA_TOKEN = re.compile(
    r"--\[\[.*?\]\]|--[^\n]*|\[\[.*?\]\]|'(?P<single>[^'\n]*)'|\"(?P<double>[^\"\n]*)\"|(?P<name>[A-Za-z_]\w*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Replaced:
    """One word, or several in a row, in lower case."""

    parts: tuple[str, ...]
    use: str
    rule: str
    """One of RULES."""
    allowed_in: frozenset[str]

    def applies_to(self, where: str) -> bool:
        return where not in self.allowed_in and (self.rule != "product" or where.startswith(PRODUCT))

    def is_in(self, name: str) -> bool:
        parts = parts_of(name)
        if self.rule == "whole":
            return parts == self.parts
        length = len(self.parts)
        return any(parts[at : at + length] == self.parts for at in range(len(parts) - length + 1))


def parts_of(name: str) -> tuple[str, ...]:
    """`OpenBook`, `open_book` and `open-book` all have the parts `open` and `book`; `routebook` has one."""
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return tuple(part.lower() for part in re.split(r"[\W_\d]+", spread) if part)


def replaced_words(page: str) -> list[Replaced]:
    section = page.partition("\n## Replaced words\n")[2]
    found: list[Replaced] = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `") or len(cells) != 4:
            continue
        words, use, rule, allowed = cells
        assert rule in RULES, f"{words}: the rule is one of {RULES}"
        allowed_in = frozenset(re.findall(r"`([^`]+)`", allowed))
        names = re.findall(r"`([^`]+)`", words)
        found.extend(Replaced(parts_of(name), use, rule, allowed_in) for name in names)
    return found


def python_names(source: str) -> Iterator[tuple[int, str]]:
    """What the text defines, and strings that are names. A use has its definition elsewhere, or is not ours."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Constant(value=str(text)) if NAME_LIKE.fullmatch(text):
                yield node.lineno, text
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


def lua_names(source: str) -> Iterator[tuple[int, str]]:
    for token in LUA_TOKEN.finditer(source):
        line = source.count("\n", 0, token.start()) + 1
        if token["name"]:
            yield line, token["name"]
        elif (text := token["single"] or token["double"]) and NAME_LIKE.fullmatch(text):
            yield line, text


def names_in(path: Path) -> Iterator[tuple[int, str]]:
    for part in path.relative_to(ROOT).with_suffix("").parts:
        yield 1, part
    source = path.read_text()
    yield from lua_names(source) if path.suffix == ".lua" else python_names(source)


def returned(replaced: list[Replaced], where: str, names: Iterator[tuple[int, str]]) -> list[str]:
    return [
        f"{where}:{line}: `{name}` has a replaced word; use {word.use}"
        for line, name in names
        for word in replaced
        if word.applies_to(where) and word.is_in(name)
    ]


REPLACED = replaced_words(GLOSSARY.read_text())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_no_replaced_word_is_an_identifier_again(path: Path) -> None:
    assert returned(REPLACED, name_of(path), names_in(path)) == []


def test_each_exception_is_needed() -> None:
    for word in REPLACED:
        for name in word.allowed_in:
            assert (ROOT / name).is_file(), f"docs/glossary.md names {name}, which is not there"
            assert any(word.is_in(found) for _, found in names_in(ROOT / name)), f"{name} has no {word.parts} any more"


def test_the_list_is_read_from_the_glossary() -> None:
    words = {word.parts for word in REPLACED}
    assert {("book",), ("network", "ill"), ("deaf",)} <= words


PLANTED = replaced_words(
    "\n## Replaced words\n\n"
    "| `book` | route table | part | |\n"
    "| `network_ill` | mass disconnect | part | `tests/old.py` |\n"
    "| `form` | lookup template | whole | |\n"
    "| `told` | notified | product | |\n"
)


@pytest.mark.parametrize(
    "planted",
    [
        "class Book: ...",
        "class OpenBook: ...",
        "def open_book(): ...",
        "def open(*, book): ...",
        "book = 1",
        "self._book = 1",
        "BOOKS, BOOK = 1, 2",
        "for book in shelf: ...",
        "from shelf import page as book",
        "match page:\n    case [book]: ...",
        "network_ill_percent: int = 20",
        "METRIC = 'routebook_network_ill_alarms_total'",
        "KIND = 'network-ill'",
        "__slots__ = ('_book',)",
        "form = 1",
    ],
)
def test_a_planted_word_is_found_in_python(planted: str) -> None:
    assert len(returned(PLANTED, "planted.py", python_names(planted))) == 1


@pytest.mark.parametrize(
    "planted",
    ["local book = 1", "local function open_book() end", "redis.call('HGET', META, 'network_ill_ms')"],
)
def test_a_planted_word_is_found_in_lua(planted: str) -> None:
    assert len(returned(PLANTED, "planted.lua", lua_names(planted))) == 1


@pytest.mark.parametrize(
    "legitimate",
    [
        "import routebook",
        "runbook = 'docs/runbook.md'",
        "text = 'a book of routes is a sentence'",
        "# book\npage = 1",
        "form_data = platform = 1",
        "network = ill = 1",
    ],
)
def test_a_legitimate_word_is_left_alone(legitimate: str) -> None:
    assert returned(PLANTED, "planted.py", python_names(legitimate)) == []


def test_a_finding_names_the_place_and_the_word_to_use() -> None:
    found = returned(PLANTED, "service/planted.py", python_names("page = 1\nbook = 2"))
    assert found == ["service/planted.py:2: `book` has a replaced word; use route table"]


def test_a_file_named_as_an_exception_may_keep_the_word() -> None:
    assert returned(PLANTED, "tests/old.py", python_names("network_ill = 1")) == []


def test_terms_stand_in_alphabetical_order_and_once() -> None:
    terms = []
    for section in GLOSSARY.read_text().partition("\n## Replaced words\n")[0].split("\n## ")[1:]:
        rows = re.findall(r"^\| \*\*(.+?)\*\*", section, re.MULTILINE)
        assert rows == sorted(rows, key=letters_of), section.partition("\n")[0]
        terms += rows
    assert [term for term in terms if terms.count(term) > 1] == []


def letters_of(term: str) -> str:
    return re.sub(r"[^a-z]", "", term.lower())


@pytest.mark.parametrize("where", ["service/planted.py", "pipeline/planted.py", "lua/planted.lua"])
def test_a_word_with_the_rule_product_is_found_in_the_product(where: str) -> None:
    assert len(returned(PLANTED, where, python_names("was_told = 1"))) == 1


@pytest.mark.parametrize("where", ["tests/planted.py", "benchmarks/planted.py"])
def test_a_word_with_the_rule_product_is_left_alone_elsewhere(where: str) -> None:
    assert returned(PLANTED, where, python_names("was_told = 1")) == []


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(AssertionError, match="the rule is one of"):
        replaced_words("\n## Replaced words\n\n| `told` | notified | sometimes | |\n")
