"""Examples in documents, as steps that can be run.

A shell runs each block fenced as `sh`. A block fenced as `json` or `text` right after it is the expected output:

- JSON is compared as a value, in which the string `…` matches anything.
- Text is compared line by line. `…` matches any characters, a line with nothing but `…` matches any number of lines,
  and blanks match any number of blanks.

A block fenced as `sh terminal` keeps running. The next step begins when its expected output has appeared.
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
    """None if the document shows no output."""
    answer_is_json: bool = False

    def is_answered_by(self, output: str) -> bool:
        if self.answer is None:
            return True
        if not self.answer_is_json:
            return text_matches(self.answer, output)
        return value_matches(json.loads(self.answer), json.loads(output))


def read_steps(document: str, replacements: Mapping[str, str]) -> Iterator[Step]:
    """The steps in the order of the document. The replacements are made in commands and in answers."""
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


def text_matches(shown: str, output: str) -> bool:
    pattern = "".join(_line_pattern(line) for line in shown.strip().splitlines())
    return re.fullmatch(pattern, output.strip() + "\n") is not None


def _line_pattern(line: str) -> str:
    if line.strip() == ANYTHING:
        return r"(?:[^\n]*\n)*?"
    parts = (r"[ \t]+".join(re.escape(word) for word in re.split(r"[ \t]+", part)) for part in line.split(ANYTHING))
    return r"[^\n]*".join(parts) + r"[ \t]*\n"


def value_matches(shown: Any, output: Any) -> bool:
    if shown == ANYTHING:
        return True
    if isinstance(shown, dict) and isinstance(output, dict):
        return shown.keys() == output.keys() and all(value_matches(value, output[key]) for key, value in shown.items())
    if isinstance(shown, list) and isinstance(output, list):
        return len(shown) == len(output) and all(map(value_matches, shown, output))
    return bool(shown == output)
