"""The compressed form of a registration's body: a zlib stream of lengths and texts."""

import re
from typing import Final

from routebook.model.topic import QueueData, TopicMapping
from routebook.wire.bodies.body_error import BodyError, JsonShapeError
from routebook.wire.bodies.inflating import Inflated
from routebook.wire.bodies.json_reading import read_json
from routebook.wire.bodies.json_values import int32
from routebook.wire.bodies.registration_body import RegistrationBody
from routebook.wire.bodies.shared_objects import MAX_SHARED_QUEUES, data_version_of, filters_of, mapping_of

FIRST_VERSION_WITH_MAPPINGS: Final = 413
"""5.0.0. Older ones end with the filter list."""

MAX_BLOCK_VALUES: Final = 2**17
"""Values in the JSON of one block. Six kilobytes inflate to five million empty lists: the frame's size bounds nothing
here. The largest honest block is the mapping of one static topic, a value a queue.
"""

_FILTER_TYPES: Final = frozenset({"SINGLE_TAG", "MULTI_TAG"})
_NUMBER: Final = re.compile(r"[+-]?\d+")
"""Java's decimal: no blanks, no underscores."""
_TOPIC_FORM: Final = "name readQueueNums writeQueueNums perm filterType [attributes], with one blank between"


def read_compressed(body: bytes, *, version: int, now_ms: int, max_inflated_bytes: int) -> RegistrationBody:
    content = Inflated(body, limit_bytes=max_inflated_bytes)
    data_version = data_version_of(_json(content.take_block()), now_ms=now_ms)
    topics = _topics(content)
    filters = _filters(content.take_block())
    mappings = _mappings(content) if version >= FIRST_VERSION_WITH_MAPPINGS else {}
    return RegistrationBody(data_version, topics, None, mappings, filters)


def _topics(content: Inflated) -> dict[str, QueueData]:
    """The count is believed only as long as there is content: it allocates nothing."""
    topics: dict[str, QueueData] = {}
    seen: dict[tuple[str, ...], QueueData] = {}
    for _ in range(content.take_int()):
        # As Java decodes: what is not UTF-8 becomes the replacement character, and the name is another one.
        fields = content.take_block().decode("utf-8", "replace").split(" ")
        queues = tuple(fields[1:5])
        found = seen.get(queues)
        if found is None:
            found = _queue_data(fields)
            if len(seen) < MAX_SHARED_QUEUES:
                seen[queues] = found
        topics[fields[0]] = found
    return topics


def _queue_data(fields: list[str]) -> QueueData:
    """Flags and order are not carried; the attributes are not used, so it does not matter whether they are JSON."""
    if len(fields) < 5 or fields[4] not in _FILTER_TYPES:
        raise JsonShapeError("topic", " ".join(fields), _TOPIC_FORM)
    read_queues, write_queues, perm = (_decimal(field) for field in fields[1:4])
    return QueueData(read_queues, write_queues, perm, 0)


def _decimal(field: str) -> int:
    if not _NUMBER.fullmatch(field) or len(field) > 20:
        raise JsonShapeError("number of a topic", field, "a decimal number")
    return int32("number of a topic", int(field), absent=0)


def _filters(block: bytes) -> tuple[str, ...] | None:
    """Unparseable is logged by the reference, and the list stays empty."""
    try:
        return filters_of(_json(block))
    except BodyError:
        return ()


def _mappings(content: Inflated) -> dict[str, TopicMapping]:
    read = (mapping_of(_json(content.take_block()), topic=None) for _ in range(content.take_int()))
    return {mapping.topic: mapping for mapping in read}


def _json(block: bytes) -> object:
    return read_json(block, max_values=MAX_BLOCK_VALUES)
