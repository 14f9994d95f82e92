"""How a registration's body that was read travels from the process that read it: in parts.

Invariant: taking in one part costs the event loop about a millisecond, whatever the body holds. So anything of which
there may be many is cut, and topics with equal queues, nearly all of them, go on sharing one value: the values travel
once, and topics as names and places in the list of values.
"""

import pickle
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from routebook.model.broker import DataVersion
from routebook.model.topic import QueueData, TopicMapping
from routebook.protocol.body_json import BodyError
from routebook.protocol.request_bodies import RegistrationBody

_Item = TypeVar("_Item")

NAMES_PER_PART: Final = 5_000
VALUES_PER_PART: Final = 500
"""Of objects that Python code builds one by one."""
NUMBERS_PER_PART: Final = 20_000


def parts_of(said: RegistrationBody, *, resident_bytes: int = 0) -> Iterator[bytes]:
    """The last one ends it. `resident_bytes` is the memory of the process that read it."""
    places: dict[int, int] = {}
    values: list[QueueData] = []
    for queue in said.topics.values():
        if id(queue) not in places:
            places[id(queue)] = len(values)
            values.append(queue)
    for some in _cut(values, VALUES_PER_PART):
        yield _part(
            "queues", [(one.read_queues, one.write_queues, one.perm, one.flags, one.by_request) for one in some]
        )
    names = list(said.topics)
    for at in range(0, len(names), NAMES_PER_PART):
        some_names = names[at : at + NAMES_PER_PART]
        yield _part("topics", some_names, array("I", [places[id(said.topics[name])] for name in some_names]))
    for keys in _cut(list(said.table_keys or ()), NAMES_PER_PART):
        yield _part("keys", keys)
    for filters in _cut(said.filters or (), NAMES_PER_PART):
        yield _part("filters", filters)
    yield from _mapping_parts(list(said.mappings.items()))
    yield _part("end", said.data_version, said.table_keys is not None, said.filters is not None, resident_bytes)


def part_of_error(error: BodyError, *, resident_bytes: int = 0) -> bytes:
    return _part("error", error, resident_bytes)


def _mapping_parts(mappings: Sequence[tuple[str, TopicMapping]]) -> Iterator[bytes]:
    """The queues of one mapping may be more than a part holds: they go before, those of all in a row."""
    numbers = [number for _, mapping in mappings for pair in mapping.current_ids for number in pair]
    for some in _cut(numbers, NUMBERS_PER_PART):
        yield _part("ids", array("i", some))
    for part in _cut(mappings, VALUES_PER_PART):
        yield _part(
            "mappings",
            [
                (key, one.topic, one.bname, one.total_queues, one.epoch, one.dirty, one.scope, len(one.current_ids))
                for key, one in part
            ],
        )


def _cut(items: Sequence[_Item], length: int) -> Iterator[Sequence[_Item]]:
    return (items[at : at + length] for at in range(0, len(items), length))


def _part(kind: str, *content: object) -> bytes:
    return pickle.dumps((kind, *content), protocol=5)


class Assembly:
    """Takes the parts of one body, in order."""

    def __init__(self) -> None:
        self.resident_bytes = 0
        self._takers: dict[str, Callable[..., RegistrationBody | None]] = {
            "queues": self._take_queues,
            "topics": self._take_topics,
            "keys": self._take_keys,
            "filters": self._take_filters,
            "ids": self._take_ids,
            "mappings": self._take_mappings,
            "end": self._take_end,
            "error": self._take_error,
        }
        self._queues: list[QueueData] = []
        self._topics: dict[str, QueueData] = {}
        self._keys: list[str] = []
        self._filters: list[str] = []
        self._ids: list[tuple[int, int]] = []
        self._ids_taken = 0
        self._mappings: dict[str, TopicMapping] = {}

    def take(self, part: bytes) -> RegistrationBody | None:
        """What was said, with the last part. Raises the BodyError that ended the reading."""
        kind, *content = pickle.loads(part)  # noqa: S301 from a child process of our own
        return self._takers[kind](*content)

    def _take_queues(self, values: list[tuple[Any, ...]]) -> None:
        self._queues += [QueueData(*value) for value in values]

    def _take_topics(self, names: list[str], places: "array[int]") -> None:
        self._topics.update(zip(names, map(self._queues.__getitem__, places), strict=True))

    def _take_keys(self, keys: list[str]) -> None:
        self._keys += keys

    def _take_filters(self, filters: Sequence[str]) -> None:
        self._filters += filters

    def _take_ids(self, numbers: "array[int]") -> None:
        self._ids += zip(numbers[::2], numbers[1::2], strict=True)

    def _take_mappings(self, mappings: list[tuple[Any, ...]]) -> None:
        for key, topic, bname, total_queues, epoch, dirty, scope, count in mappings:
            end = self._ids_taken + count
            ids = tuple(self._ids[self._ids_taken : end])
            self._mappings[key] = TopicMapping(topic, bname, total_queues, epoch, dirty, scope, ids)
            self._ids_taken = end

    def _take_end(
        self, data_version: DataVersion | None, has_keys: bool, has_filters: bool, resident_bytes: int
    ) -> RegistrationBody:
        self.resident_bytes = resident_bytes
        return RegistrationBody(
            data_version=data_version,
            topics=self._topics,
            table_keys=frozenset(self._keys) if has_keys else None,
            mappings=self._mappings,
            filters=tuple(self._filters) if has_filters else None,
        )

    def _take_error(self, error: BodyError, resident_bytes: int) -> RegistrationBody:
        self.resident_bytes = resident_bytes
        raise error
