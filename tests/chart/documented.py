"""The commands and the files of values that README.md and docs/kubernetes.md show."""

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
_PASSED_ON = ("--set", "--set-string", "-f", "--values", "--namespace", "-n")


@dataclass(frozen=True)
class Command:
    """`helm install` or `helm upgrade`, as it stands there."""

    page: str
    text: str
    files: tuple[tuple[str, str], ...]
    """Of values: name and text, those shown on the same page."""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    def template(self, chart: Path, folder: Path) -> list[str]:
        """The same values, only rendered."""
        for name, text in self.files:
            (folder / name).write_text(text)
        _, _, release, place, *rest = self.words
        assert place == "helm/routebook", self.text
        words = ["template", release, str(chart)]
        while rest:
            word = rest.pop(0)
            if word in _PASSED_ON:
                value = rest.pop(0)
                words += [word, str(folder / value) if word in ("-f", "--values") else value]
        return words


@dataclass(frozen=True)
class Block:
    """What is typed in one go."""

    page: str
    before: str
    """The text since the block before it."""
    lines: tuple[str, ...]
    """Whole, and loops written out."""
    files: tuple[tuple[str, str], ...]

    @property
    def installs(self) -> bool:
        return any(line.startswith("helm install ") for line in self.lines)


def commands() -> list[Command]:
    shown = [(block.page, line, block.files) for block in blocks() for line in block.lines] + [
        (page.name, line, ()) for page in PAGES for line in inline_commands(page)
    ]
    return [Command(*one) for one in shown if re.match(r"helm (install|upgrade) ", one[1])]


def inline_commands(page: Path) -> list[str]:
    return [" ".join(found.split()) for found in _INLINE.findall(_BLOCK.sub("", page.read_text()))]


def blocks() -> list[Block]:
    return [block for page in PAGES for block in _blocks_of(page)]


def _blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    found = [(one.start(), one.end(), one[2], _dedented(one[3], len(one[1]))) for one in _BLOCK.finditer(text)]
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
    """`for name in a b c; do … done`, written out."""

    def written_out(loop: re.Match[str]) -> str:
        return "".join(loop[3].replace(f"${loop[1]}", word) for word in loop[2].split())

    return _LOOP.sub(written_out, text)
