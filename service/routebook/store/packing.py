"""How values are written in the store, and in the JSON of a change."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.encoder import encode_basestring
from typing import Final, Literal

from routebook.model.broker import QueueData, TopicMapping
from routebook.model.names import Caller

_quote: Final = encode_basestring
"""A text as `json.dumps` with `ensure_ascii=False` writes it, in a twentieth of the time."""

ITEMS_PER_CHUNK: Final = 1000
"""Queue items per entry of the history, which has at most 1,000 topics and 256 KiB."""

CHUNK_BYTES: Final = 200_000
"""A chunk of long topic names ends before it has that many items. The script joins chunks up to the same size."""


def compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def pack_caller(caller: Caller) -> str:
    """The JSON members that every change begins with."""
    members = {"actor": caller.actor, "source": caller.source}
    for name in ("worker", "port", "verb"):
        if value := getattr(caller, name):
            members[name] = value
    return compact_json(members)[1:-1]


def sha256_of(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def queue_item(topic: str, queue: QueueData) -> str:
    """One item of a change's `queues`. Formatted by hand, because a registration has thousands of them."""
    return '{"t":' + _quote(topic) + _queue_numbers(queue)


def queue_items(queues: Mapping[str, QueueData]) -> list[str]:
    """The topics of a registration share a few values, so each value is formatted once."""
    numbers = _for_each_topic(queues, _queue_numbers)
    return ['{"t":' + _quote(topic) + text for topic, text in zip(queues, numbers, strict=True)]


def _queue_numbers(queue: QueueData) -> str:
    return f',"r":{queue.read_queues},"w":{queue.write_queues},"p":{queue.perm},"f":{queue.flags}}}'


def pack_queues(queues: Mapping[str, QueueData]) -> list[str]:
    """Topic, packed queue data, topic, packed queue data, …"""
    packed = _for_each_topic(queues, QueueData.pack)
    return [word for pair in zip(queues, packed, strict=True) for word in pair]


def _for_each_topic(queues: Mapping[str, QueueData], convert: Callable[[QueueData], str]) -> Iterator[str]:
    """Converts each distinct value once."""
    keys = list(map(id, queues.values()))
    converted = {key: convert(queue) for key, queue in dict(zip(keys, queues.values(), strict=True)).items()}
    return map(converted.__getitem__, keys)


def _removed_item(topic: str) -> str:
    return f'{{"t":{_quote(topic)},"x":1}}'


QueueChange = tuple[Literal["n", "d", "x"], Mapping[str, QueueData | None]]
"""Topics that are new, that differ, or that are dropped (with None)."""


def queue_chunks(change: QueueChange) -> list[str]:
    """Queue items joined for the history, each chunk small enough for one entry: `<kind> <number>`, items, …"""
    kind, queues = change
    present = {topic: queue for topic, queue in queues.items() if queue}
    items = queue_items(present) if present else [_removed_item(topic) for topic in queues]
    packed: list[str] = []
    for at in range(0, len(items), ITEMS_PER_CHUNK):
        chunk = items[at : at + ITEMS_PER_CHUNK]
        joined = ",".join(chunk)
        if len(joined.encode()) <= CHUNK_BYTES:
            packed += [f"{kind} {len(chunk)}", joined]
        else:
            packed += _chunks_of_long_names(kind, chunk)
    return packed


def _chunks_of_long_names(kind: str, items: list[str]) -> list[str]:
    packed: list[str] = []
    chunk: list[str] = []
    size = 0
    for item in items:
        length = len(item.encode()) + 1
        if chunk and size + length > CHUNK_BYTES:
            packed += [f"{kind} {len(chunk)}", ",".join(chunk)]
            chunk, size = [], 0
        chunk.append(item)
        size += length
    return [*packed, f"{kind} {len(chunk)}", ",".join(chunk)]


def pack_mapping(mapping: TopicMapping) -> str:
    return compact_json(
        {
            "topic": mapping.topic,
            "bname": mapping.bname,
            "totalQueues": mapping.total_queues,
            "epoch": mapping.epoch,
            "dirty": mapping.dirty,
            "scope": mapping.scope,
            "currIdMap": [list(pair) for pair in mapping.current_ids],
        }
    )


def unpack_mapping(packed: bytes | str) -> TopicMapping:
    read = json.loads(packed)
    return TopicMapping(
        topic=read["topic"],
        bname=read["bname"],
        total_queues=read["totalQueues"],
        epoch=read["epoch"],
        dirty=read["dirty"],
        scope=read["scope"],
        current_ids=tuple((logical, physical) for logical, physical in read["currIdMap"]),
    )


def pack_filters(filters: Iterable[str] | None) -> str:
    """Empty text keeps the stored list; `[]` removes it."""
    return "" if filters is None else compact_json(list(filters))


def unpack_seats(flat: list[bytes]) -> dict[int, str]:
    """From id, address, id, address, …"""
    return {int(flat[i]): flat[i + 1].decode() for i in range(0, len(flat), 2)}


def pairs(flat: list[bytes]) -> Mapping[str, str]:
    """From the reply for a hash: field, value, field, value, …"""
    return {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}
