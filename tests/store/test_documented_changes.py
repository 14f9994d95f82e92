"""`docs/changes.md` has exactly the kinds, fields, types and causes that the scripts append."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from routebook.store.history import BASELINE_KINDS, KINDS
from routebook.store.namespace import Namespace
from tests.architecture.sources import ROOT
from tests.support.every_kind import make_every_kind_of_change

DOCUMENT = (ROOT / "docs" / "changes.md").read_text()
FIELD = re.compile(r"`(?P<name>\w+)` (?P<type>\w+)(?P<null> or null)?(?P<optional> may be absent)?")


@dataclass(frozen=True)
class Field:
    type: str
    may_be_null: bool
    may_be_absent: bool

    def allows(self, value: Any) -> bool:
        return (value is None and self.may_be_null) or is_a(self.type, value)


@dataclass(frozen=True)
class Kind:
    fields: dict[str, Field]
    words: frozenset[str]
    """The words in code type in the last column: the causes, if there are any."""


def is_a(kind: str, value: Any) -> bool:
    match kind:
        case "text":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "texts":
            return isinstance(value, list) and all(isinstance(one, str) for one in value)
        case "integers":
            return isinstance(value, list) and all(is_a("integer", one) for one in value)
        case "object":
            allowed = {"addr", "zone", "acting", "ha", "timeout_ms", "queues"}
            return isinstance(value, dict) and value.keys() <= allowed and is_a("queues", value.get("queues", []))
        case "queues":
            return isinstance(value, list) and all(is_queue_item(one) for one in value)
        case "rows":
            return isinstance(value, list) and all(one.keys() == {"c", "b", "i", "n", "max", "h"} for one in value)
    raise AssertionError(f"the page does not explain the type {kind}")


def is_queue_item(item: dict[str, Any]) -> bool:
    if item.keys() == {"t", "x"}:
        return bool(item["x"] == 1)
    return item.keys() == {"t", "r", "w", "p", "f"} and all(is_a("integer", item[name]) for name in "rwpf")


def fields_of(cell: str) -> dict[str, Field]:
    found = list(FIELD.finditer(cell))
    assert ", ".join(one[0] for one in found) == cell.strip(), cell
    return {one["name"]: Field(one["type"], bool(one["null"]), bool(one["optional"])) for one in found}


def rows(pattern: str) -> Iterable[re.Match[str]]:
    return re.finditer(pattern, DOCUMENT, re.MULTILINE)


COMMON = {
    one["name"]: Field(one["type"], False, bool(one["optional"]))
    for one in rows(r"^\| `(?P<name>\w+)` \| (?P<type>\w+)(?P<optional> may be absent)? \| ")
}
OF_REQUESTS = {name for name, field in COMMON.items() if field.may_be_absent}
"""Only changes that a peer requested have them; the changes below are made without a port."""
KIND_ROWS = list(rows(r"^\| (?P<code>\d+) \| `(?P<kind>[a-z-]+)` \| (?P<fields>.*) \| (?P<when>.*) \|$"))
CHANGES = {
    one["kind"]: Kind(COMMON | fields_of(one["fields"]), frozenset(re.findall(r"`([a-z-]+)`", one["when"])))
    for one in KIND_ROWS
}
PULSES = {
    one["kind"]: Kind({"kind": Field("text", False, False)} | fields_of(one["fields"]), frozenset())
    for one in rows(r"^\| `(?P<kind>gaps)` \| (?P<fields>.*) \| (?P<when>.*) \|$")
}


@pytest.fixture
async def appended(namespace: Namespace) -> list[tuple[str, dict[str, Any]]]:
    """Name of the stream, and entry."""
    await make_every_kind_of_change(namespace)
    found = []
    for stream in ("changes", "pulse"):
        for _, fields in await namespace.client.call("XRANGE", namespace.keys.table(stream), "-", "+"):
            assert fields[0] == b"d"
            found.append((stream, json.loads(fields[1])))
    return found


def documented(stream: str, entry: dict[str, Any]) -> Kind:
    known = CHANGES if stream == "changes" else PULSES
    assert entry["kind"] in known, f"{entry['kind']} is not documented"
    return known[entry["kind"]]


async def test_every_entry_is_as_documented(appended: list[tuple[str, dict[str, Any]]]) -> None:
    for stream, entry in appended:
        kind = documented(stream, entry)
        assert entry.keys() <= kind.fields.keys(), entry
        required = {name for name, field in kind.fields.items() if not field.may_be_absent}
        assert required <= entry.keys(), entry
        wrong = {name: value for name, value in entry.items() if not kind.fields[name].allows(value)}
        assert wrong == {}, entry


async def test_every_documented_kind_and_field_is_appended(appended: list[tuple[str, dict[str, Any]]]) -> None:
    seen: dict[str, set[str]] = {}
    for _, entry in appended:
        seen.setdefault(entry["kind"], set()).update(entry)
    fields = {kind: set(documented_kind.fields) - OF_REQUESTS for kind, documented_kind in CHANGES.items()}
    fields |= {kind: set(documented_kind.fields) for kind, documented_kind in PULSES.items()}
    assert seen.keys() == fields.keys()
    # Both kinds of registration have the same fields for parts, mappings and filters.
    seen["broker-changed"] |= seen["broker-registered"]
    assert seen == fields


async def test_causes_are_those_documented(appended: list[tuple[str, dict[str, Any]]]) -> None:
    seen: dict[str, set[str]] = {}
    for _, entry in appended:
        if "cause" in entry:
            seen.setdefault(entry["kind"], set()).add(entry["cause"])
    causes = {
        kind: set(documented_kind.words)
        for kind, documented_kind in CHANGES.items()
        if "cause" in documented_kind.fields
    }
    seen["write-permission"] |= {"operator"}  # tests/http_api/test_callers.py
    seen["baseline-begin"] |= {"new-history", "trimmed", "operator"}  # tests/background/test_history_upkeep.py
    assert seen == causes


def test_the_service_has_exactly_the_documented_kinds() -> None:
    assert set(CHANGES) == {*KINDS, *BASELINE_KINDS}
    codes = [int(one["code"]) for one in KIND_ROWS]
    assert codes == sorted(set(codes))


def test_there_is_one_example_of_each_kind() -> None:
    found = [json.loads(one["entry"]) for one in rows(r"^\d+-\d+ (?P<entry>\{.*\})$")]
    assert [entry["kind"] for entry in found] == [*CHANGES, *PULSES]
    for entry in found:
        kind = {**CHANGES, **PULSES}[entry["kind"]]
        assert all(kind.fields[name].allows(value) for name, value in entry.items()), entry
