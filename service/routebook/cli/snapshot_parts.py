"""A snapshot in parts that a service takes one by one, and the sum of what it says to them."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import click

from routebook.errors import InvalidInputError

PART_TOPICS: Final = 5_000
"""About half a megabyte: some ten milliseconds of a worker. A group stays whole, however many topics it has: its
registration would be as large.
"""
MEMBER_TOPICS: Final = 50
"""What a member counts for: each is a registration, whether it has topics or not."""
PART_VALUES: Final = 250

_SHAPE: Final = {
    "snapshot": int,
    "taken": dict,
    "left_out": list,
    "settings": dict,
    "key_values": dict,
    "groups": list,
}

Document = dict[str, Any]


def read_snapshot(file: str) -> Document:
    try:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}.") from error
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(file, f"no JSON ({error})", "what `routebook snapshot export` writes") from None
    if not isinstance(document, dict) or not all(isinstance(document.get(key), kind) for key, kind in _SHAPE.items()):
        raise InvalidInputError(file, "some JSON", "what `routebook snapshot export` writes")
    if unknown := document.keys() - _SHAPE.keys():
        raise InvalidInputError("key of the snapshot", min(unknown), ", ".join(_SHAPE))
    return document


def parts_of(document: Document) -> list[Document]:
    """Each is a snapshot by itself. Settings come first, since they may have a say in what follows."""
    head = {"snapshot": document["snapshot"], "settings": document["settings"]}
    parts = [head, *_value_parts(document), *_group_parts(document)]
    return [{**part, "snapshot": document["snapshot"]} for part in parts]


def _value_parts(document: Document) -> list[Document]:
    entries = [
        (namespace, key, value) for namespace, values in document["key_values"].items() for key, value in values.items()
    ]
    parts = []
    for start in range(0, len(entries), PART_VALUES):
        values: dict[str, dict[str, str]] = {}
        for namespace, key, value in entries[start : start + PART_VALUES]:
            values.setdefault(namespace, {})[key] = value
        parts.append({"key_values": values})
    return parts


def _group_parts(document: Document) -> list[Document]:
    parts: list[list[object]] = []
    size = PART_TOPICS
    for group in document["groups"]:
        weight = _weight(group)
        if size + weight > PART_TOPICS or not parts:
            parts.append([])
            size = 0
        parts[-1].append(group)
        size += weight
    return [{"groups": groups} for groups in parts]


def _weight(group: object) -> int:
    """Whatever is in the file: the service says what is wrong with it."""
    if not isinstance(group, dict):
        return 1
    topics, members = (
        found if isinstance(found, dict | list) else () for found in map(group.get, ("topics", "members"))
    )
    return len(topics) + MEMBER_TOPICS * len(members) + 1


class Sum:
    """What the service said to all parts."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.steps: list[Document] = []
        self.left_out: list[str] = []
        self.turned_down: list[str] = []
        self.version = 0

    def add(self, answer: Document) -> None:
        for kind, counted in answer["counts"].items():
            self.counts.setdefault(kind, Counter()).update(counted)
        self.steps += answer["steps"]
        self.left_out += answer["left_out"]
        self.turned_down += answer["turned_down"]
        self.version = answer["version"]

    @property
    def is_complete(self) -> bool:
        """All of the snapshot is (or would be) in the route table."""
        return not (self.left_out or self.turned_down or any(counted["keep"] for counted in self.counts.values()))

    def document(self, *, dry_run: bool) -> Document:
        return {
            "dry_run": dry_run,
            "counts": {kind: dict(counted) for kind, counted in self.counts.items()},
            "steps": self.steps,
            "left_out": self.left_out,
            "turned_down": self.turned_down,
            "version": self.version,
        }
