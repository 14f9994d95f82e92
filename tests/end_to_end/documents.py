"""Examples in documents, as steps that can be run.

A block fenced as `sh` is run by a shell. A block fenced as `json` or `text` right after it is what it answers: JSON is
compared as a value in which the text `…` stands for anything; text line by line: `…` stands for any characters,
a line of nothing but `…` for any number of lines, and blanks for blanks however many. `sh terminal` keeps running: the
example goes on when its text has appeared.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ANYTHING = "…"
_FENCE = re.compile(r"^```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    command: str
    keeps_running: bool
    answer: str | None
    """None when the document shows none."""
    answer_is_json: bool = False

    def is_answered_by(self, said: str) -> bool:
        if self.answer is None:
            return True
        if not self.answer_is_json:
            return says_the_same(self.answer, said)
        return is_like(json.loads(self.answer), json.loads(said))


def read_steps(document: str, replacements: Mapping[str, str]) -> Iterator[Step]:
    """In the order of the document, with every replacement made in commands and answers."""
    longest_first = sorted(replacements, key=len, reverse=True)
    shown = "|".join(map(re.escape, longest_first))
    document = re.sub(shown, lambda found: replacements[found[0]], document) if shown else document
    blocks = list(_FENCE.finditer(document))
    for at, block in enumerate(blocks):
        if block["language"] != "sh":
            continue
        after = blocks[at + 1] if at + 1 < len(blocks) else None
        answer = after if after and after["language"] in {"json", "text"} else None
        yield Step(
            command=block["body"],
            keeps_running=block["rest"].strip() == "terminal",
            answer=answer["body"] if answer else None,
            answer_is_json=bool(answer and answer["language"] == "json"),
        )


def says_the_same(shown: str, said: str) -> bool:
    pattern = "".join(_line_pattern(line) for line in shown.strip().splitlines())
    return re.fullmatch(pattern, said.strip() + "\n") is not None


def _line_pattern(line: str) -> str:
    if line.strip() == ANYTHING:
        return r"(?:[^\n]*\n)*?"
    parts = (r"[ \t]+".join(re.escape(word) for word in re.split(r"[ \t]+", part)) for part in line.split(ANYTHING))
    return r"[^\n]*".join(parts) + r"[ \t]*\n"


def is_like(shown: Any, said: Any) -> bool:
    if shown == ANYTHING:
        return True
    if isinstance(shown, dict) and isinstance(said, dict):
        return shown.keys() == said.keys() and all(is_like(value, said[key]) for key, value in shown.items())
    if isinstance(shown, list) and isinstance(said, list):
        return len(shown) == len(said) and all(map(is_like, shown, said))
    return bool(shown == said)
