"""What an entry of each stream must look like, and the quick way to decode entries where they are read.

Arrow decodes a whole reply at once, in a tenth of the time that Spark's `from_json` takes. It is stricter, and does not
say which entry of a reply is wrong, so it is used only for entries that are certainly readable. All others keep their
payload, and `lake/parsing.py` parses that, decides whether the entry is readable, and gives the reason if it is not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pyarrow
from pyarrow import compute
from pyarrow import json as arrow_json
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from routebook_pipeline.kinds import BY_TITLE, COMMON_FIELDS, FORMER_TITLES, KNOWN_FORMAT, OPTIONAL, REQUIRED, Kind
from routebook_pipeline.schemas import SOURCE
from routebook_pipeline.source.stream import CHANGES, PULSE


@dataclass(frozen=True)
class ListRule:
    """The fields that every item of a list must have."""

    strings: tuple[str, ...]
    numbers: tuple[str, ...]
    unless: str | None = None
    """If this field has a value other than 0, the item needs no numbers."""


@dataclass(frozen=True)
class EntryFormat:
    """What an entry of one stream must look like."""

    fields: Mapping[str, DataType]
    """The fields that are read, `v` and `kind` first; all others are ignored."""
    codes: Mapping[str, int]
    """Kind -> number."""
    required: Mapping[int, tuple[str, ...]]
    optional: Mapping[int, tuple[str, ...]]
    unknown: int
    """The number of a kind that is not in `codes`."""
    lists: Mapping[str, ListRule] = field(default_factory=dict)

    @property
    def schema(self) -> StructType:
        return StructType([StructField(name, kind) for name, kind in self.fields.items()])

    @property
    def source_schema(self) -> StructType:
        """The columns of the source with decoded entries: each row has an `entry` or a `payload`."""
        return StructType([*SOURCE.fields, StructField("entry", self.schema)])

    @cached_property
    def arrow(self) -> pyarrow.Schema:
        return to_arrow_schema(self.schema)

    @property
    def strings(self) -> tuple[str, ...]:
        return tuple(name for name, kind in self.fields.items() if isinstance(kind, StringType))

    def codes_requiring(self, name: str) -> list[int]:
        return [code for code, names in self.required.items() if name in names]

    def codes_allowing(self, name: str) -> list[int]:
        return self.codes_requiring(name) + [code for code, names in self.optional.items() if name in names]

    @cached_property
    def kinds_requiring(self) -> dict[str, pyarrow.Array]:
        """Field -> the kinds that must have it."""
        return {
            name: pyarrow.array([kind for kind, code in self.codes.items() if code in self.codes_requiring(name)])
            for name in sorted({name for names in self.required.values() for name in names})
        }


_STRING, _INT, _LONG, _BOOLEAN = StringType(), IntegerType(), LongType(), BooleanType()
QUEUE_ITEM: Final = StructType([StructField("t", _STRING), *(StructField(name, _INT) for name in "rwpfx")])
_SEAT_GAPS: Final = StructType(
    [
        *(StructField(name, _STRING) for name in ("c", "b")),
        *(StructField(name, _LONG) for name in ("i", "n", "max")),
        StructField("h", ArrayType(ArrayType(_LONG))),
    ]
)

CHANGE_FORMAT: Final = EntryFormat(
    fields={
        "v": _INT,
        **dict.fromkeys(("kind", "cluster", "broker"), _STRING),
        "id": _LONG,
        **dict.fromkeys(("addr", "cause", "rule", "namespace", "key"), _STRING),
        **dict.fromkeys(("perm", "touched"), _INT),
        **dict.fromkeys(("from_ms", "to_ms", "timeout_ms", "last_heartbeat_ms", "lost_ms"), _LONG),
        **dict.fromkeys(("first", "acting", "group_removed"), _BOOLEAN),
        **dict.fromkeys(("incarnation", "zone", "actor", "source"), _STRING),
        "queues": ArrayType(QUEUE_ITEM),
    },
    codes={title: int(kind) for title, kind in (BY_TITLE | FORMER_TITLES).items()},
    required={int(kind): names for kind, names in REQUIRED.items()},
    optional={int(kind): OPTIONAL.get(kind, ()) + COMMON_FIELDS for kind in REQUIRED},
    unknown=int(Kind.UNKNOWN),
    lists={"queues": ListRule(strings=("t",), numbers=("r", "w", "p", "f"), unless="x")},
)

GAPS_CODE: Final = 1
GAPS_FORMAT: Final = EntryFormat(
    fields={
        "v": _INT,
        **dict.fromkeys(("kind", "worker"), _STRING),
        **dict.fromkeys(("from_ms", "to_ms"), _LONG),
        "rows": ArrayType(_SEAT_GAPS),
    },
    codes={"gaps": GAPS_CODE},
    required={GAPS_CODE: ("worker", "from_ms", "to_ms", "rows")},
    optional={},
    unknown=0,
    lists={"rows": ListRule(strings=("c", "b"), numbers=("i", "n", "max", "h"))},
)

FORMATS: Final[Mapping[str, EntryFormat]] = {CHANGES: CHANGE_FORMAT, PULSE: GAPS_FORMAT}
"""By the name of the stream."""

SMALLEST_BLOCK: Final = 64
"""A block with an entry that Arrow does not decode is halved, so that the others are decoded; smaller ones are not."""


def decode(payloads: Sequence[bytes], entry_format: EntryFormat) -> tuple[pyarrow.Array, pyarrow.Array]:
    """The payloads of the entries that are not decoded here, and the decoded entries; one of the two is null in each
    row.
    """
    blocks = list(_blocks(payloads, entry_format))
    entries = pyarrow.concat_arrays(blocks) if blocks else pyarrow.array([], pyarrow.struct(entry_format.arrow))
    is_decoded = entries.is_valid()
    if compute.all(is_decoded, min_count=0).as_py():
        return pyarrow.nulls(len(payloads), pyarrow.binary()), entries
    kept = pyarrow.array(payloads, pyarrow.binary())
    return compute.if_else(is_decoded, pyarrow.scalar(None, pyarrow.binary()), kept), entries


def _blocks(payloads: Sequence[bytes], entry_format: EntryFormat) -> list[pyarrow.Array]:
    """Structs of the decoded entries, with a null for each other one."""
    if not payloads:
        return []
    decoded = _decode_block(payloads, entry_format)
    if decoded is not None:
        return [decoded]
    if len(payloads) < 2 * SMALLEST_BLOCK:
        return [pyarrow.nulls(len(payloads), pyarrow.struct(entry_format.arrow))]
    half = len(payloads) // 2
    return [*_blocks(payloads[:half], entry_format), *_blocks(payloads[half:], entry_format)]


def _decode_block(payloads: Sequence[bytes], entry_format: EntryFormat) -> pyarrow.Array | None:
    """None if one of the entries cannot be decoded."""
    block = b"\n".join(payloads)
    if not _is_one_object_a_line(block, len(payloads)):
        return None
    try:
        table = arrow_json.read_json(
            pyarrow.BufferReader(block),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=entry_format.arrow, unexpected_field_behavior="ignore"
            ),
        )
    except pyarrow.ArrowInvalid:
        return None
    # A line with two objects gives two rows, and no line gives none.
    if table.num_rows != len(payloads):
        return None
    (batch,) = table.combine_chunks().to_batches()
    undecided = _undecided(batch, entry_format)
    mask = None if not compute.any(undecided, min_count=0).as_py() else undecided
    return pyarrow.StructArray.from_arrays(batch.columns, fields=list(batch.schema), mask=mask)


def _is_one_object_a_line(block: bytes, lines: int) -> bool:
    r"""Whether Arrow finds the limits of the entries in the text, and decodes it as Spark does: Arrow does not check
    UTF-8, and accepts half of a surrogate pair (`\ud800`).
    """
    if not block.startswith(b"{") or block.count(b"\n") != lines - 1 or block.count(b"\n{") != lines - 1:
        return False
    if b"\r" in block or (b"\\u" in block and (b"\\ud" in block or b"\\uD" in block)):
        return False
    if block.isascii():
        return True
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _undecided(batch: pyarrow.RecordBatch, entry_format: EntryFormat) -> pyarrow.Array:
    """Which entries are of another kind or format, or lack a field."""
    kind = batch.column("kind")
    known = compute.and_(
        compute.is_in(kind, pyarrow.array(list(entry_format.codes))),
        compute.fill_null(compute.less_equal(batch.column("v"), KNOWN_FORMAT), False),
    )
    undecided = compute.invert(known)
    for name, kinds in entry_format.kinds_requiring.items():
        if batch.column(name).null_count:
            lacking = compute.and_(batch.column(name).is_null(), compute.is_in(kind, kinds))
            undecided = compute.or_(undecided, lacking)
    for name, rule in entry_format.lists.items():
        undecided = compute.or_(undecided, _has_broken_items(batch.column(name), rule))
    return undecided


def _has_broken_items(lists: Any, rule: ListRule) -> pyarrow.Array:
    """Whether an item of the list lacks a field."""
    items = lists.flatten()
    broken = _any_null(items, rule.numbers)
    if rule.unless is not None:
        is_exempt = compute.fill_null(compute.not_equal(compute.struct_field(items, rule.unless), 0), False)
        broken = compute.and_not(broken, is_exempt)
    broken = compute.or_(broken, _any_null(items, rule.strings))
    rows = pyarrow.array(range(len(lists)), pyarrow.int64())
    if not compute.any(broken, min_count=0).as_py():
        return compute.less(rows, 0)
    return compute.is_in(rows, compute.list_parent_indices(lists).filter(broken).cast(pyarrow.int64()))


def _any_null(items: Any, names: Sequence[str]) -> pyarrow.Array:
    """Whether the item itself, or one of its fields, is null."""
    found = items.is_null()
    for name in names:
        found = compute.or_(found, compute.struct_field(items, name).is_null())
    return found
