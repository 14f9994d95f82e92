"""Parses the Lua files: what their headers document, and what their bodies do.

Headers are written for people, but in the fixed form that lua/README.md describes, so that this module can read them.
"""

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from tests.architecture.sources import LUA

HEADER = re.compile(r"--\[\[\n(?P<text>.*?)\n\]\]\n(?P<body>.*)", re.DOTALL)
ITEM = re.compile(r"^(?P<table>KEYS|ARGV)\[(?P<number>\d+)(?P<more>…)?\]\s+(?P<name>[a-z_][a-z0-9_]*)?", re.MULTILINE)
REPLY = re.compile(r"^reply\s+\{(?P<values>.*?)\}(?P<rest>.*)", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r"^-- include: (?P<name>\w+)$", re.MULTILINE)
USES = re.compile(r"Uses: (?P<names>[\w, \n]+)\.")
DEFINED = re.compile(r"^local (?:function (?P<function>\w+)|(?P<names>\w+(?:, \w+)*)(?: *=|$))", re.MULTILINE)
WORD = re.compile(r"(?<![\w.:'\"])[A-Za-z_]\w*")


@dataclass(frozen=True)
class LuaFile:
    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def _parts(self) -> re.Match[str]:
        found = HEADER.fullmatch(self.path.read_text())
        assert found, f"{self.path.name} does not begin with a header"
        return found

    @property
    def header(self) -> str:
        return self._parts["text"]

    @property
    def body(self) -> str:
        """The code, without comments."""
        return re.sub(r"--(?!\[\[).*", "", self._parts["body"])

    @property
    def words(self) -> set[str]:
        """Names in the code, without members of tables and without strings."""
        return set(WORD.findall(re.sub(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"", "''", self.body)))

    @property
    def defines(self) -> set[str]:
        """Names that scripts get by including this file."""
        found: set[str] = set()
        for match in DEFINED.finditer(self.body):
            found |= {match["function"]} if match["function"] else set(match["names"].split(", "))
        return found

    @property
    def includes(self) -> list[str]:
        return INCLUDE.findall(self._parts["body"])

    @property
    def uses(self) -> set[str]:
        """The includes that this include documents as required."""
        found = USES.search(self.header)
        return set(re.split(r",\s+", found["names"])) if found else set()


@dataclass(frozen=True)
class LuaScript(LuaFile):
    """A command: a Lua file with arguments and a reply."""

    def _documented(self, table: str) -> dict[int, str | None]:
        found = [match for match in ITEM.finditer(self.header) if match["table"] == table and not match["more"]]
        return {int(match["number"]): match["name"] for match in found}

    @property
    def documented_keys(self) -> dict[int, str | None]:
        return self._documented("KEYS")

    @property
    def documented_arguments(self) -> dict[int, str | None]:
        """Number → name of each argument that is always present."""
        return self._documented("ARGV")

    @property
    def documented_tail(self) -> int | None:
        """The number of the first argument of the list at the end, if there is one."""
        found = [int(match["number"]) for match in ITEM.finditer(self.header) if match["more"]]
        assert len(found) <= 1, f"{self.name} documents two lists of arguments"
        return found[0] if found else None

    @property
    def used_arguments(self) -> set[int]:
        return {int(number) for number in re.findall(r"ARGV\[(\d+)\]", self.body)}

    @property
    def used_tail(self) -> int | None:
        """By convention, the constant FIRST_… is the number of its first argument."""
        for names, values in re.findall(r"^local (\w+(?:, \w+)*) = ([\d, ]+)$", self.body, re.MULTILINE):
            for name, value in zip(names.split(", "), values.split(", "), strict=True):
                if name.startswith("FIRST_"):
                    return int(value)
        return None

    @property
    def named_arguments(self) -> dict[int, str]:
        """Number → the variable to which the body assigns the argument, if it does so in a plain assignment."""
        names: dict[int, str] = {}
        for left, right in re.findall(r"^local (\w+(?:, \w+)*) = (.*ARGV\[\d+\].*)$", self.body, re.MULTILINE):
            for name, value in zip(left.split(", "), right.split(", "), strict=False):
                found = re.fullmatch(r"(?:tonumber\()?ARGV\[(\d+)\]\)?(?: == '1')?", value.strip())
                if found:
                    names[int(found[1])] = name
        for name, number in re.findall(r"(\w+) = tonumber\(ARGV\[(\d+)\]\)", self.body):
            names.setdefault(int(number), name)
        return names

    @property
    def reply(self) -> re.Match[str]:
        found = REPLY.search(self.header)
        assert found, f"{self.name} does not document its reply"
        return found

    @property
    def has_status(self) -> bool:
        """False for a script that documents "no status", because it only reads and cannot fail."""
        return "no status" not in self.reply["rest"]

    @property
    def documented_statuses(self) -> set[str]:
        return set(re.findall(r"\b[A-Z][A-Z_]+\b", self.reply["rest"])) & set(statuses())

    @property
    def used_statuses(self) -> set[str]:
        return self.words & set(statuses())

    @property
    def returns(self) -> list[str]:
        """The contents of the outermost braces of each reply."""
        return re.findall(r"return \{ (.*?) \}$", self.body, re.MULTILINE)


@cache
def scripts() -> dict[str, LuaScript]:
    return {path.stem: LuaScript(path) for path in sorted(LUA.glob("*.lua"))}


@cache
def includes() -> dict[str, LuaFile]:
    return {path.stem: LuaFile(path) for path in sorted((LUA / "include").glob("*.lua"))}


@cache
def statuses() -> dict[str, int]:
    text = (LUA / "include" / "statuses.lua").read_text()
    return {name: int(number) for name, number in re.findall(r"^local ([A-Z_]+) = (\d+)", text, re.MULTILINE)}
