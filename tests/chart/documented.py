"""Reads the commands and values files that README.md and docs/kubernetes.md show."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.sources import ROOT

PAGES = (ROOT / "README.md", ROOT / "docs" / "kubernetes.md")

_BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:helm|kubectl) [^`]+)`")
_VALUES = re.compile(r"# (\S+\.yaml)\b")
_LOOP = re.compile(r"^for (\w+) in ([^;\n]+); do\n(.*?)^done$", re.MULTILINE | re.DOTALL)
_FORWARDED_OPTIONS = ("--set", "--set-string", "-f", "--values", "--namespace", "-n")


@dataclass(frozen=True)
class Command:
    """One `helm install` or `helm upgrade` command, as the page shows it."""

    page: str
    text: str
    files: tuple[tuple[str, str], ...]
    """Values files shown on the same page: name and text."""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    def template(self, chart: Path, folder: Path) -> list[str]:
        """Arguments of a `helm template` with the same values."""
        for name, text in self.files:
            (folder / name).write_text(text)
        _, _, release, shown_chart, *rest = self.words
        assert shown_chart == "helm/routebook", self.text
        arguments = ["template", release, str(chart)]
        while rest:
            word = rest.pop(0)
            if word in _FORWARDED_OPTIONS:
                value = rest.pop(0)
                arguments += [word, str(folder / value) if word in ("-f", "--values") else value]
        return arguments


@dataclass(frozen=True)
class Block:
    """One block of commands."""

    page: str
    before: str
    """The text between the previous block and this one."""
    lines: tuple[str, ...]
    """Its commands, with continuation lines joined and loops expanded."""
    files: tuple[tuple[str, str], ...]

    @property
    def installs(self) -> bool:
        return any(line.startswith("helm install ") for line in self.lines)


def commands() -> list[Command]:
    shown = [(block.page, line, block.files) for block in blocks() for line in block.lines] + [
        (page.name, line, ()) for page in PAGES for line in inline_commands(page)
    ]
    return [Command(*entry) for entry in shown if re.match(r"helm (install|upgrade) ", entry[1])]


def inline_commands(page: Path) -> list[str]:
    return [" ".join(found.split()) for found in _INLINE.findall(_BLOCK.sub("", page.read_text()))]


def blocks() -> list[Block]:
    return [block for page in PAGES for block in _blocks_of(page)]


def _blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    found = [
        (match.start(), match.end(), match[2], _dedented(match[3], len(match[1]))) for match in _BLOCK.finditer(text)
    ]
    files = tuple(
        (name[1], inner) for *_, language, inner in found if language == "yaml" and (name := _VALUES.match(inner))
    )
    last = 0
    for start, end, language, inner in found:
        if language != "yaml":
            lines = [" ".join(line.split()) for line in _unrolled(inner).replace("\\\n", " ").splitlines()]
            yield Block(page.name, " ".join(text[last:start].split()), tuple(filter(None, lines)), files)
        last = end


def _dedented(text: str, indent: int) -> str:
    return "".join(line[indent:] if line[:indent].isspace() else line for line in text.splitlines(keepends=True))


def _unrolled(text: str) -> str:
    """Expands `for name in a b c; do … done`."""

    def expanded(loop: re.Match[str]) -> str:
        return "".join(loop[3].replace(f"${loop[1]}", word) for word in loop[2].split())

    return _LOOP.sub(expanded, text)
