"""Parses entries of a stream into rows of the lake. Data frames in, data frames out; everything runs in the JVM.

Whatever its payload, an entry becomes at least its row 0 in `changes`, and no entry stops the query. An entry that is
not readable gets a reason.

`from_json` alone does not find all mistakes. It returns nulls, without marking the row, for an empty payload, `{}` and
a missing field; it reads `5` as the string "5"; and it ignores text after the first object. So the payload is parsed as
the only item of a list in an object, where text after it is a syntax error. An entry that looks wrong is parsed again
with the types that its values really have, which names the wrong field.

The rules are SQL text: as column objects they take thousands of calls into the JVM, a second for every batch.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name
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

from routebook_pipeline.history import ERA_SHIFT
from routebook_pipeline.kinds import BY_TITLE, COMMON_FIELDS, FORMER_TITLES, KNOWN_FORMAT, OPTIONAL, REQUIRED, Kind
from routebook_pipeline.schemas import CHANGES, PULSES
from routebook_pipeline.source.reading import HOLE_PREFIX

NEWER: Final = "newer"
"""The reason of an entry whose format (`v`) is newer than this release."""

_JSON_OPTIONS = {"columnNameOfCorruptRecord": "corrupt", "allowSingleQuotes": "false"}


@dataclass(frozen=True)
class ListRule:
    """The fields that every item of a list must have."""

    strings: tuple[str, ...]
    numbers: tuple[str, ...]
    unless: str | None = None
    """If this field has a value, the item needs no numbers."""

    def is_broken(self, items: str) -> str:
        """Whether a field of an item is missing, or has another type, which `from_json` turned into null."""
        numbers = _any(f"item.{name} IS NULL" for name in self.numbers)
        if self.unless is not None:
            numbers = f"coalesce(item.{self.unless}, 0) = 0 AND ({numbers})"
        strings = _any(f"item.{name} IS NULL" for name in self.strings)
        return f"coalesce(exists({items}, item -> item IS NULL OR {strings} OR ({numbers})), false)"


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
    def strings(self) -> tuple[str, ...]:
        return tuple(name for name, kind in self.fields.items() if isinstance(kind, StringType))

    def codes_requiring(self, name: str) -> list[int]:
        return [code for code, names in self.required.items() if name in names]

    def codes_allowing(self, name: str) -> list[int]:
        return self.codes_requiring(name) + [code for code, names in self.optional.items() if name in names]


def validate(entries: DataFrame, entry_format: EntryFormat, known_format: int) -> DataFrame:
    """Adds to entries with a `payload`: `entry` (the fields), `kind_code` (the number of the kind), and `reason`. The
    reason is null when the entry is readable, else `utf8`, `json`, `field:<name>`, `newer` or `kind`. An entry of an
    unknown kind is readable.
    """
    wrapped = StructType([StructField("d", ArrayType(entry_format.schema)), StructField("corrupt", StringType())])
    codes = ", ".join(f"'{kind}', {code}" for kind, code in entry_format.codes.items())
    named_type = "named_struct('name', p.key, 'type', schema_of_variant(p.value))"
    typed = f"transform(map_entries(from_json(text, 'MAP<STRING, VARIANT>')), p -> {named_type})"
    return (
        entries.withColumn(
            "text", F.expr("CASE WHEN is_valid_utf8(CAST(payload AS STRING)) THEN CAST(payload AS STRING) END")
        )
        .withColumn("parsed", F.from_json(F.expr("concat('{\"d\":[', text, ']}')"), wrapped, _JSON_OPTIONS))
        .withColumn("entry", F.expr("CASE WHEN size(parsed.d) = 1 THEN parsed.d[0] END"))
        .withColumn("kind_code", F.expr(f"coalesce(try_element_at(map({codes}), entry.kind), {entry_format.unknown})"))
        .withColumn("types", F.expr(f"CASE WHEN entry IS NOT NULL AND ({_looks_wrong(entry_format)}) THEN {typed} END"))
        .withColumn("reason", F.expr(_reason(entry_format, known_format)))
        .drop("text", "parsed", "types")
    )


def _reason(entry_format: EntryFormat, known_format: int) -> str:
    fields = " ".join(f"WHEN {_is_wrong(name, entry_format)} THEN 'field:{name}'" for name in entry_format.fields)
    return f"""CASE
        WHEN text IS NULL THEN 'utf8'
        WHEN entry IS NULL THEN 'json'
        WHEN entry.v > {known_format} THEN '{NEWER}'
        WHEN entry.v IS NULL THEN 'field:v'
        WHEN entry.kind IS NULL OR {_is_no_string("kind")} THEN 'kind'
        WHEN types IS NOT NULL THEN CASE {fields} END
    END"""


def _looks_wrong(entry_format: EntryFormat) -> str:
    """A cheap check that is true for every entry with a mistake, and for some without."""
    no_strings = [f"coalesce({_may_be_no_string(f'entry.{name}')}, false)" for name in entry_format.strings]
    no_strings += [
        f"coalesce(exists(entry.{name}, item -> {_may_be_no_string(f'item.{inner}')}), false)"
        for name, rule in entry_format.lists.items()
        for inner in rule.strings
    ]
    missing = [
        f"{_code_in(entry_format.codes_requiring(name))} AND entry.{name} IS NULL"
        for name in sorted({name for names in entry_format.required.values() for name in names})
    ]
    broken = [rule.is_broken(f"entry.{name}") for name, rule in entry_format.lists.items()]
    return _any(["parsed.corrupt IS NOT NULL", *no_strings, *missing, *broken])


_TEXT_OF_NO_STRING = r'^(?:-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?(?:[eE][-+]?[0-9]+)?$|["\[]|[-+]?(?:NaN|INF|Inf))'


def _may_be_no_string(value: str) -> str:
    """Where a string is expected, `from_json` returns the text of any value: `5` for a number, `[5]` for a list. The
    check is on the returned value and not on the payload: an anchored pattern on short values takes a tenth of the time
    of a search in the whole text. Most values begin with a small letter, where three comparisons are enough: no number
    and no list begins with one.
    """
    begins_otherwise = f"{value} < 'a' AND {value} RLIKE r'{_TEXT_OF_NO_STRING}'"
    return f"({begins_otherwise} OR {value} IN ('true', 'false') OR startswith({value}, '{{'))"


def _is_wrong(name: str, entry_format: EntryFormat) -> str:
    value = f"entry.{name}"
    mistyped = (
        [_is_no_string(name)]
        if isinstance(entry_format.fields[name], StringType)
        else [f"{value} IS NULL AND {_has_value(name)}"]
    )
    rule = entry_format.lists.get(name)
    if rule is not None:
        mistyped += [rule.is_broken(value), _items_have_no_strings(name, rule)]
    missing = f"{_code_in(entry_format.codes_requiring(name))} AND {value} IS NULL"
    return f"({missing} OR {_code_in(entry_format.codes_allowing(name))} AND ({_any(mistyped)}))"


def _type_of(name: str) -> str:
    """The type of the last value with this name; null when there is none, or the entry was not parsed again."""
    return f"try_element_at(filter(types, p -> p.name = '{name}'), -1).type"


def _has_value(name: str) -> str:
    return f"coalesce({_type_of(name)} <> 'VOID', false)"


def _is_no_string(name: str) -> str:
    return f"coalesce({_type_of(name)} NOT IN ('STRING', 'VOID'), false)"


def _items_have_no_strings(name: str, rule: ListRule) -> str:
    kind = _type_of(name)
    missing = _any(rf"{kind} NOT RLIKE r'[<\s]{inner}: STRING\b'" for inner in rule.strings)
    return f"coalesce({kind} LIKE 'ARRAY<OBJECT%' AND ({missing}), false)"


def _code_in(codes: list[int]) -> str:
    return f"kind_code IN ({', '.join(map(str, codes))})" if codes else "false"


def _any(conditions: Iterable[str]) -> str:
    return " OR ".join(conditions)


_STRING, _INT, _LONG, _BOOLEAN = StringType(), IntegerType(), LongType(), BooleanType()
_QUEUE: Final = StructType([StructField("t", _STRING), *(StructField(name, _INT) for name in "rwpfx")])
_SEAT_GAPS: Final = StructType(
    [
        *(StructField(name, _STRING) for name in ("c", "b")),
        *(StructField(name, _LONG) for name in ("i", "n", "max")),
        StructField("h", ArrayType(ArrayType(_LONG))),
    ]
)

_CHANGES: Final = EntryFormat(
    fields={
        "v": _INT,
        **dict.fromkeys(("kind", "cluster", "broker"), _STRING),
        "id": _LONG,
        **dict.fromkeys(("addr", "cause", "rule", "namespace", "key"), _STRING),
        **dict.fromkeys(("perm", "touched"), _INT),
        **dict.fromkeys(("from_ms", "to_ms", "timeout_ms", "last_heartbeat_ms", "lost_ms"), _LONG),
        **dict.fromkeys(("first", "acting", "group_removed"), _BOOLEAN),
        **dict.fromkeys(("incarnation", "zone", "actor", "source"), _STRING),
        "queues": ArrayType(_QUEUE),
    },
    codes={title: int(kind) for title, kind in (BY_TITLE | FORMER_TITLES).items()},
    required={int(kind): names for kind, names in REQUIRED.items()},
    optional={int(kind): OPTIONAL.get(kind, ()) + COMMON_FIELDS for kind in REQUIRED},
    unknown=int(Kind.UNKNOWN),
    lists={"queues": ListRule(strings=("t",), numbers=("r", "w", "p", "f"), unless="x")},
)
CHANGE_FIELDS: Final = _CHANGES.fields

_GAPS: Final = 1
_PULSES: Final = EntryFormat(
    fields={
        "v": _INT,
        **dict.fromkeys(("kind", "worker"), _STRING),
        **dict.fromkeys(("from_ms", "to_ms"), _LONG),
        "rows": ArrayType(_SEAT_GAPS),
    },
    codes={"gaps": _GAPS},
    required={_GAPS: ("worker", "from_ms", "to_ms", "rows")},
    optional={},
    unknown=0,
    lists={"rows": ListRule(strings=("c", "b"), numbers=("i", "n", "max", "h"))},
)


@dataclass(frozen=True)
class Batch:
    """Values that all rows of a batch share; `ingested_ms` is explained in `schemas.CHANGES`."""

    ns: str
    era: int
    ingested_ms: int


@dataclass(frozen=True)
class EntryParser:
    """Parses the entries of one stream into rows of its table."""

    entry_format: EntryFormat
    to_rows: Callable[[DataFrame, Batch], DataFrame]
    """Turns each validated entry into its rows."""

    def validate(self, entries: DataFrame, known_format: int) -> DataFrame:
        """Keeps one row for each entry or hole."""
        validated = validate(entries, self.entry_format, known_format)
        return validated.withColumn("reason", F.expr("if(hole, NULL, reason)"))


def parse(entries: DataFrame, ns: str, era: int, ingested_ms: int, *, known_format: int = KNOWN_FORMAT) -> DataFrame:
    """Parses entries and holes (`schemas.SOURCE`) into rows of `schemas.CHANGES`."""
    parser = PARSERS["changes"]
    return parser.to_rows(parser.validate(with_positions(entries), known_format), Batch(ns, era, ingested_ms))


def with_positions(entries: DataFrame) -> DataFrame:
    """Adds `hole`, `ms`, `version` and `last_version`, which differs from `version` only in a hole. They come from the
    id, so that entries that the lake already has can be dropped before they are parsed.
    """
    return entries.selectExpr(
        f"startswith(entry_id, '{HOLE_PREFIX}') AS hole",
        f"split(replace(entry_id, '{HOLE_PREFIX}', ''), '-') AS id",
        "payload",
    ).selectExpr(
        "hole",
        "CAST(id[0] AS BIGINT) AS ms",
        "CAST(id[1] AS BIGINT) AS version",
        "CAST(if(hole, get_json_object(CAST(payload AS STRING), '$.to_version'), id[1]) AS BIGINT) AS last_version",
        "payload",
    )


def after_version(entries: DataFrame, version: int) -> DataFrame:
    """Drops the versions up to `version`, from holes too."""
    first = F.expr(f"greatest(version, {version + 1}L)")
    return entries.where(F.col("last_version") > version).withColumn("version", first)


def _rows_of_changes(validated: DataFrame, batch: Batch) -> DataFrame:
    keeps_raw = f"code IN ({Kind.UNKNOWN:d}, {Kind.UNREADABLE:d})"
    coded = validated.selectExpr(
        "*",
        f"CASE WHEN hole THEN {Kind.HOLE:d} WHEN reason IS NOT NULL THEN {Kind.UNREADABLE:d} "
        "ELSE kind_code END AS code",
    ).selectExpr(
        "*",
        f"code NOT IN ({Kind.HOLE:d}, {Kind.UNKNOWN:d}, {Kind.UNREADABLE:d}) AS known",
        # Spark splits base64 into lines.
        rf"CASE WHEN {keeps_raw} THEN translate(base64(payload), '\r\n', '') END AS raw",
    )
    queue = _QUEUE.simpleString()
    items = f"concat(array(CAST(NULL AS {queue})), coalesce(if(known, entry.queues, NULL), array()))"
    exploded = coded.selectExpr("*", f"{_literal(batch.ns)} AS ns", f"posexplode({items}) AS (row, item)")
    values = {name: f"CASE WHEN row = 0 AND known THEN entry.{name} END" for name in _CHANGES.fields}
    return exploded.selectExpr(*_columns(CHANGES, values | _CHANGE_VALUES | _batch_values(batch)))


def _literal(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _batch_values(batch: Batch) -> dict[str, str]:
    return {
        "ns": _literal(batch.ns),
        "era": f"{batch.era}",
        "ord": f"version + {batch.era * ERA_SHIFT}L",
        "ingested_ms": f"{batch.ingested_ms}L",
    }


def _key(condition: str, *names: str) -> str:
    """A hash to sort and shuffle by; null where a name is missing."""
    all_there = " AND ".join(f"{name} IS NOT NULL" for name in names)
    return f"if({condition} AND {all_there}, xxhash64({', '.join(('ns', *names))}), NULL)"


_READABLE: Final = f"row = 0 AND code NOT IN ({Kind.HOLE:d}, {Kind.UNREADABLE:d})"
_CHANGE_VALUES: Final = {
    **{name: name for name in ("version", "row", "ms", "code", "raw")},
    "kind": f"CASE code WHEN {Kind.HOLE:d} THEN '{Kind.HOLE.title}' "
    f"WHEN {Kind.UNREADABLE:d} THEN '{Kind.UNREADABLE.title}' "
    # A kind that had another name in an older service is stored under its present one.
    + "".join(f"WHEN {kind:d} THEN '{kind.title}' " for kind in FORMER_TITLES.values())
    + "ELSE entry.kind END",
    "v": "if(hole, NULL, entry.v)",
    "cluster": "if(known, entry.cluster, NULL)",
    "broker": "if(known, entry.broker, NULL)",
    "broker_id": "if(row = 0 AND known, entry.id, NULL)",
    "cause": f"coalesce(reason, if({_READABLE}, entry.cause, NULL))",
    "actor": f"if({_READABLE}, entry.actor, NULL)",
    "source": f"if({_READABLE}, entry.source, NULL)",
    "topic": "item.t",
    "removed": "if(row = 0, NULL, coalesce(item.x, 0) <> 0)",
    "read_queues": "item.r",
    "write_queues": "item.w",
    "perm": "CASE WHEN row > 0 THEN item.p WHEN known THEN entry.perm END",
    "flags": "item.f",
    "from_version": "if(hole, version, NULL)",
    "to_version": "if(hole, last_version, NULL)",
    "seat_key": _key("row = 0 AND known", "entry.cluster", "entry.broker", "entry.id"),
    "group_key": _key("known", "entry.cluster", "entry.broker"),
    "queue_key": _key("row > 0", "item.t", "entry.cluster", "entry.broker"),
}


def _rows_of_pulses(validated: DataFrame, batch: Batch) -> DataFrame:
    """Unreadable entries and entries of other kinds have no row in `pulses`."""
    seats = validated.where(f"NOT hole AND reason IS NULL AND kind_code = {_GAPS}").selectExpr(
        "version", "ms", "entry", "explode(entry.rows) AS seat"
    )
    buckets = seats.selectExpr("*", "explode(seat.h) AS bucket").where("size(bucket) = 2")
    return buckets.selectExpr(*_columns(PULSES, _PULSE_VALUES | _batch_values(batch)))


_PULSE_VALUES: Final = {
    **{name: name for name in ("version", "ms")},
    **{name: f"entry.{name}" for name in ("worker", "from_ms", "to_ms")},
    "cluster": "seat.c",
    "broker": "seat.b",
    "broker_id": "seat.i",
    "bucket": "try_cast(bucket[0] AS INT)",
    "count": "bucket[1]",
    "max_ms": "seat.max",
}


def _columns(schema: StructType, values: dict[str, str]) -> list[str]:
    types = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return [f"CAST({values.get(name, 'NULL')} AS {type_name}) AS `{name}`" for name, type_name in types]


PARSERS: Final = {
    "changes": EntryParser(_CHANGES, _rows_of_changes),
    "pulses": EntryParser(_PULSES, _rows_of_pulses),
}
"""By the name of the table."""
