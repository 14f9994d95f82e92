"""The commands of Helm and the files of values that README.md and docs/kubernetes.md show."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.sources import ROOT

PAGES = (ROOT / "README.md", ROOT / "docs" / "kubernetes.md")

_BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(helm [^`]+)`")
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


def commands() -> list[Command]:
    return [command for page in PAGES for command in _commands_of(page)]


def _commands_of(page: Path) -> Iterator[Command]:
    text = page.read_text()
    blocks = [(language, _dedented(inner, len(indent))) for indent, language, inner in _BLOCK.findall(text)]
    files = tuple(
        (found[1], inner) for language, inner in blocks if language == "yaml" and (found := _VALUES.match(inner))
    )
    shells = [_unrolled(inner) for language, inner in blocks if language != "yaml"]
    lines = [line.strip() for shell in shells for line in shell.replace("\\\n", " ").splitlines()]
    lines += [" ".join(found.split()) for found in _INLINE.findall(_BLOCK.sub("", text))]
    for line in lines:
        if re.match(r"helm (install|upgrade) ", line):
            yield Command(page.name, " ".join(line.split()), files)


def _dedented(text: str, indent: int) -> str:
    return "".join(line[indent:] if line[:indent].isspace() else line for line in text.splitlines(keepends=True))


def _unrolled(text: str) -> str:
    """`for name in a b c; do … done`, written out."""

    def written_out(loop: re.Match[str]) -> str:
        return "".join(loop[3].replace(f"${loop[1]}", word) for word in loop[2].split())

    return _LOOP.sub(written_out, text)
