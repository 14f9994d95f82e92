"""The header of a Lua file documents exactly the arguments, replies and includes of its body."""

import re

import pytest

from routebook.store.namespace import Status
from tests.architecture.lua_scripts import LuaFile, LuaScript, includes, scripts, statuses

SCRIPTS = list(scripts().values())
INCLUDES = list(includes().values())
every_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
every_include = pytest.mark.parametrize("include", INCLUDES, ids=lambda include: include.name)


def owners_of_used_names(file: LuaFile) -> set[str]:
    """The includes whose names this file uses. A name defined in the file itself hides that of an include."""
    foreign = file.words - file.defines
    return {other.name for other in INCLUDES if other.name != file.name and foreign & other.defines}


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 10
    assert INCLUDES


@every_script
def test_a_header_begins_with_a_sentence(script: LuaScript) -> None:
    assert re.match(r"[A-Z][^\n]{20,}", script.header)


@every_script
def test_the_one_key_is_documented_and_no_other_is_used(script: LuaScript) -> None:
    """The include `keys` derives all other keys from it, in the same slot."""
    assert script.documented_keys == {1: "meta"}
    assert set(re.findall(r"KEYS\[(\d+)\]", script.body)) <= {"1"}
    assert "keys" in script.includes


@every_script
def test_arguments_are_documented_in_order_and_without_gaps(script: LuaScript) -> None:
    numbers = list(script.documented_arguments)
    assert numbers == list(range(1, len(numbers) + 1))
    assert script.documented_tail in {None, len(numbers) + 1}


@every_script
def test_every_argument_is_used_and_every_used_one_documented(script: LuaScript) -> None:
    assert script.used_arguments == set(script.documented_arguments)
    assert script.used_tail == script.documented_tail


@every_script
def test_an_argument_has_the_same_name_in_header_and_body(script: LuaScript) -> None:
    documented = script.documented_arguments
    different = {
        number: (documented[number], name)
        for number, name in script.named_arguments.items()
        if documented[number] not in {name, name.removeprefix("is_")}
    }
    assert different == {}
    assert None not in documented.values()


@every_script
def test_the_statuses_documented_are_those_replied(script: LuaScript) -> None:
    assert script.documented_statuses == script.used_statuses
    assert bool(script.documented_statuses) == script.has_status


@every_script
def test_a_reply_begins_with_status_and_version(script: LuaScript) -> None:
    if not script.has_status:
        return
    assert script.reply["values"].startswith("status, version")
    assert script.returns or "return reply" in script.body
    assert {reply for reply in script.returns if "," not in reply} == set()


@every_script
def test_no_reply_has_more_values_than_documented(script: LuaScript) -> None:
    documented = script.reply["values"]
    if "…" in documented or not script.has_status:
        return
    lengths = {len(split_values(reply)) for reply in script.returns}
    assert max(lengths, default=0) == len(documented.split(","))


def split_values(text: str) -> list[str]:
    """Splits at commas that are not inside brackets."""
    flat = text
    while (inner := re.sub(r"\([^()]*\)|\{[^{}]*\}", "", flat)) != flat:
        flat = inner
    return flat.split(",")


@every_script
def test_a_script_includes_what_it_needs_and_nothing_twice(script: LuaScript) -> None:
    named = script.includes
    assert len(named) == len(set(named))
    assert [name for name in named if name not in includes()] == []
    needed = owners_of_used_names(script).union(*(includes()[name].uses for name in named))
    assert set(named) == needed


@every_script
def test_an_include_comes_after_what_it_uses(script: LuaScript) -> None:
    named = script.includes
    early = [(name, used) for at, name in enumerate(named) for used in includes()[name].uses if used not in named[:at]]
    assert early == []


@every_include
def test_an_include_documents_what_it_uses(include: LuaFile) -> None:
    assert include.uses == owners_of_used_names(include)
    assert include.includes == []


@every_include
def test_an_include_is_included(include: LuaFile) -> None:
    assert [script.name for script in SCRIPTS if include.name in script.includes]


@every_include
def test_an_include_reads_no_argument(include: LuaFile) -> None:
    assert "ARGV" not in include.words
    assert "KEYS" not in include.words or include.name == "keys"


def test_includes_do_not_use_each_other_in_a_cycle() -> None:
    left = {include.name: set(include.uses) for include in INCLUDES}
    while ready := [name for name, uses in left.items() if not uses & set(left)]:
        for name in ready:
            del left[name]
    assert left == {}


def test_a_name_is_defined_by_one_include_only() -> None:
    owners: dict[str, list[str]] = {}
    for include in INCLUDES:
        for name in include.defines:
            owners.setdefault(name, []).append(include.name)
    assert {name: found for name, found in owners.items() if len(found) > 1} == {}


def test_statuses_are_the_same_in_python() -> None:
    assert statuses() == {status.name: status.value for status in Status}


def test_statuses_are_numbered_without_gaps() -> None:
    assert sorted(statuses().values()) == list(range(len(statuses())))
