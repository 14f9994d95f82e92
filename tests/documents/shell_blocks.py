"""The commands in the blocks of the documents, split into words as a shell does."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.architecture.sources import ROOT, tracked_files

_BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>[a-z]*)[^\n]*\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INNER = re.compile(r"\$\(([^()]*)\)")
_SEPARATORS = set(";|&()\n ")
_REDIRECTIONS = {">", ">>", "<", "<<", "2>", "&>", ">&"}
_KEYWORDS = {"do", "then", "else", "exec", "time", "nice", "sudo", "while", "if", "!", "{", "env"}
_WITHOUT_PROGRAM = {"for", "done", "fi", "export", "case", "esac", "}"}
CLOSED = "docs/decisions/"
"""Decisions are closed: they show the commands of their time."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    body: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def blocks() -> tuple[Block, ...]:
    pages = [path for path in tracked_files() if path.suffix == ".md" and not name_of(path).startswith(CLOSED)]
    return tuple(block for page in pages for block in blocks_of(name_of(page), page.read_text()))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks_of(page: str, text: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(text):
        body = "\n".join(line.removeprefix(found["indent"]) for line in found["body"].splitlines())
        if found["language"] == "console":
            body = "\n".join(line[2:] for line in body.splitlines() if line.startswith("$ "))
        yield Block(page, text.count("\n", 0, found.start()) + 1, found["language"], body)


def commands_of(script: str) -> Iterator[list[str]]:
    """The words of each command, with those inside `$(…)`, without assignments and redirections."""
    script = re.sub(r"<<\s*'?(\w+)'?\n.*?^\1$", "", script, flags=re.MULTILINE | re.DOTALL).replace("\\\n", " ")
    while inner := _INNER.search(script):
        yield from commands_of(inner[1])
        script = script[: inner.start()] + "VALUE" + script[inner.end() :]
    words = shlex.shlex(script, posix=True, punctuation_chars="();<>|&\n")
    words.whitespace, words.whitespace_split, words.commenters = " \t", True, ""
    command: list[str] = []
    for word in [*_without_comments(words), "\n"]:
        if word and set(word) <= _SEPARATORS:
            yield from filter(None, [_without_prefixes(command)])
            command = []
        else:
            command.append(word)


def _without_comments(words: Iterator[str]) -> Iterator[str]:
    is_comment = False
    for word in words:
        is_comment = (is_comment or word.startswith("#")) and "\n" not in word
        if not is_comment:
            yield word


def _without_prefixes(command: list[str]) -> list[str]:
    kept: list[str] = []
    words = iter(command)
    for word in words:
        if word in _REDIRECTIONS:
            if kept and kept[-1] in {"1", "2"}:
                kept.pop()
            next(words, None)
        elif kept or not (word in _KEYWORDS or re.match(r"\w+=", word)):
            kept.append(word)
    return [] if kept and kept[0] in _WITHOUT_PROGRAM else kept
