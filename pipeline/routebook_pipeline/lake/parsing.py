"""Which entries are readable, and why the others are not.

`from_json` alone does not tell: it answers an empty payload, `{}` and a missing field with nulls and without a mark,
reads `5` as the string "5", and does not look at what follows the first object. So the payload is parsed inside a list
inside an object (what follows it is then a mistake), and an entry that looks odd is parsed a second time, with the
types its values really have, to name the field.

The rules are written as SQL: as objects they are thousands of calls into the JVM, a second for every batch.

From entries of a stream to rows of the lake. Pure: data frames in, data frames out, and everything in the JVM.

Whatever its payload, an entry becomes at least its row 0 in `changes`, and none stops the query.
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
"""The reason of an entry whose `v` is higher than what is known here."""

_OPTIONS = {"columnNameOfCorruptRecord": "marked", "allowSingleQuotes": "false"}


@dataclass(frozen=True)
class ListRule:
    """What every item of a list must have."""

    strings: tuple[str, ...]
    numbers: tuple[str, ...]
    unless: str | None = None
    """With a value here, an item needs no numbers."""

    def broken(self, items: str) -> str:
        """Whether an item lacks something, or has it in another type, which `from_json` turned into null."""
        numbers = _any(f"item.{name} IS NULL" for name in self.numbers)
        if self.unless is not None:
            numbers = f"coalesce(item.{self.unless}, 0) = 0 AND ({numbers})"
        strings = _any(f"item.{name} IS NULL" for name in self.strings)
        return f"coalesce(exists({items}, item -> item IS NULL OR {strings} OR ({numbers})), false)"


@dataclass(frozen=True)
class Grammar:
    """The entries of one stream."""

    fields: Mapping[str, DataType]
    """Those that are looked at, `v` and `kind` first; what else an entry has is nobody's business."""
    codes: Mapping[str, int]
    """Kind -> number."""
    required: Mapping[int, tuple[str, ...]]
    optional: Mapping[int, tuple[str, ...]]
    unknown: int
    """The number of a kind that has none."""
    lists: Mapping[str, ListRule] = field(default_factory=dict)

    @property
    def entry(self) -> StructType:
        return StructType([StructField(name, kind) for name, kind in self.fields.items()])

    @property
    def strings(self) -> tuple[str, ...]:
        return tuple(name for name, kind in self.fields.items() if isinstance(kind, StringType))

    def requiring(self, name: str) -> list[int]:
        return [code for code, names in self.required.items() if name in names]

    def allowing(self, name: str) -> list[int]:
        return self.requiring(name) + [code for code, names in self.optional.items() if name in names]


def judge(entries: DataFrame, grammar: Grammar, known_format: int) -> DataFrame:
    """Adds `entry` (the fields), `told` (the number of its kind) and `reason` to entries with a `payload`: null when
    readable, else `utf8`, `json`, `field:<name>`, `newer` or `kind`. A kind without a number is readable.
    """
    wrapped = StructType([StructField("d", ArrayType(grammar.entry)), StructField("marked", StringType())])
    codes = ", ".join(f"'{kind}', {code}" for kind, code in grammar.codes.items())
    kind = "named_struct('name', p.key, 'kind', schema_of_variant(p.value))"
    typed = f"transform(map_entries(from_json(text, 'MAP<STRING, VARIANT>')), p -> {kind})"
    return (
        entries.withColumn(
            "text", F.expr("CASE WHEN is_valid_utf8(CAST(payload AS STRING)) THEN CAST(payload AS STRING) END")
        )
        .withColumn("parsed", F.from_json(F.expr("concat('{\"d\":[', text, ']}')"), wrapped, _OPTIONS))
        .withColumn("entry", F.expr("CASE WHEN size(parsed.d) = 1 THEN parsed.d[0] END"))
        .withColumn("told", F.expr(f"coalesce(try_element_at(map({codes}), entry.kind), {grammar.unknown})"))
        .withColumn("types", F.expr(f"CASE WHEN entry IS NOT NULL AND ({_looks_odd(grammar)}) THEN {typed} END"))
        .withColumn("reason", F.expr(_reason(grammar, known_format)))
        .drop("text", "parsed", "types")
    )


def _reason(grammar: Grammar, known_format: int) -> str:
    fields = " ".join(f"WHEN {_wrong(name, grammar)} THEN 'field:{name}'" for name in grammar.fields)
    return f"""CASE
        WHEN text IS NULL THEN 'utf8'
        WHEN entry IS NULL THEN 'json'
        WHEN entry.v > {known_format} THEN '{NEWER}'
        WHEN entry.v IS NULL THEN 'field:v'
        WHEN entry.kind IS NULL OR {_is_no_string("kind")} THEN 'kind'
        WHEN types IS NOT NULL THEN CASE {fields} END
    END"""


def _looks_odd(grammar: Grammar) -> str:
    """Cheap, and true of every entry in which something is wrong."""
    unquoted = [f"coalesce({_may_be_no_string(f'entry.{name}')}, false)" for name in grammar.strings]
    unquoted += [
        f"coalesce(exists(entry.{name}, item -> {_may_be_no_string(f'item.{inner}')}), false)"
        for name, rule in grammar.lists.items()
        for inner in rule.strings
    ]
    lacking = [f"{_is_one(grammar.requiring(name))} AND entry.{name} IS NULL" for name in _named(grammar.required)]
    broken = [rule.broken(f"entry.{name}") for name, rule in grammar.lists.items()]
    return _any(["parsed.marked IS NOT NULL", *unquoted, *lacking, *broken])


_TEXT_OF_NO_STRING = r'^(?:-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?(?:[eE][-+]?[0-9]+)?$|["\[]|[-+]?(?:NaN|INF|Inf))'


def _may_be_no_string(value: str) -> str:
    """`from_json` gives the text of whatever stands in a string's place: of a number `5`, of a list `[5]`. Looked for
    there and not in the payload: an anchored pattern on short values costs a tenth of a search in the whole text. And
    most names begin with a small letter, for which three comparisons do: no number does, nor what opens a list.
    """
    begins_otherwise = f"{value} < 'a' AND {value} RLIKE r'{_TEXT_OF_NO_STRING}'"
    return f"({begins_otherwise} OR {value} IN ('true', 'false') OR startswith({value}, '{{'))"


def _wrong(name: str, grammar: Grammar) -> str:
    value = f"entry.{name}"
    mistyped = (
        [_is_no_string(name)]
        if isinstance(grammar.fields[name], StringType)
        else [f"{value} IS NULL AND {_is_there(name)}"]
    )
    rule = grammar.lists.get(name)
    if rule is not None:
        mistyped += [rule.broken(value), _items_have_no_strings(name, rule)]
    absent = f"{_is_one(grammar.requiring(name))} AND {value} IS NULL"
    return f"({absent} OR {_is_one(grammar.allowing(name))} AND ({_any(mistyped)}))"


def _type_of(name: str) -> str:
    """Of the last value under this name; null when the entry was not looked at twice, or has none."""
    return f"try_element_at(filter(types, p -> p.name = '{name}'), -1).kind"


def _is_there(name: str) -> str:
    return f"coalesce({_type_of(name)} <> 'VOID', false)"


def _is_no_string(name: str) -> str:
    return f"coalesce({_type_of(name)} NOT IN ('STRING', 'VOID'), false)"


def _items_have_no_strings(name: str, rule: ListRule) -> str:
    kind = _type_of(name)
    missing = _any(rf"{kind} NOT RLIKE r'[<\s]{inner}: STRING\b'" for inner in rule.strings)
    return f"coalesce({kind} LIKE 'ARRAY<OBJECT%' AND ({missing}), false)"


def _is_one(codes: list[int]) -> str:
    return f"told IN ({', '.join(map(str, codes))})" if codes else "false"


def _named(table: Mapping[int, tuple[str, ...]]) -> list[str]:
    return sorted({name for names in table.values() for name in names})


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

_CHANGES: Final = Grammar(
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

_GAPS: Final = 1
_PULSES: Final = Grammar(
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
    """Where a batch belongs. `ingested_ms`: see `schemas.CHANGES`."""

    ns: str
    era: int
    ingested_ms: int


@dataclass(frozen=True)
class Form:
    """How the entries of one stream become rows of its table: `judged` keeps one row an entry, `rows` unfolds it."""

    judged: Callable[[DataFrame, int], DataFrame]
    rows: Callable[[DataFrame, Batch], DataFrame]


def parse(entries: DataFrame, ns: str, era: int, ingested_ms: int, *, known_format: int = KNOWN_FORMAT) -> DataFrame:
    """Entries (`schemas.SOURCE`, holes among them) to rows of `schemas.CHANGES`."""
    return CHANGES_FORM.rows(CHANGES_FORM.judged(located(entries), known_format), Batch(ns, era, ingested_ms))


def located(entries: DataFrame) -> DataFrame:
    """Each with where it is: `hole`, `ms`, `version`, and `last_version`, which is another one only in a hole. Taken
    from the id, so that what the lake holds already is left out without being parsed.
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


def above(entries: DataFrame, version: int) -> DataFrame:
    """What ends above `version`; a hole that begins at or below it begins right behind it."""
    begins = F.expr(f"greatest(version, {version + 1}L)")
    return entries.where(F.col("last_version") > version).withColumn("version", begins)


def _judged(grammar: Grammar) -> Callable[[DataFrame, int], DataFrame]:
    def judged(entries: DataFrame, known_format: int) -> DataFrame:
        judged = judge(entries, grammar, known_format)
        return judged.withColumn("reason", F.expr("if(hole, NULL, reason)"))

    return judged


def _rows_of_changes(judged: DataFrame, batch: Batch) -> DataFrame:
    raw = f"code IN ({Kind.UNKNOWN:d}, {Kind.UNREADABLE:d})"
    coded = judged.selectExpr(
        "*",
        f"CASE WHEN hole THEN {Kind.HOLE:d} WHEN reason IS NOT NULL THEN {Kind.UNREADABLE:d} ELSE told END AS code",
    ).selectExpr(
        "*",
        f"code NOT IN ({Kind.HOLE:d}, {Kind.UNKNOWN:d}, {Kind.UNREADABLE:d}) AS known",
        # Spark breaks base64 into lines.
        rf"CASE WHEN {raw} THEN translate(base64(payload), '\r\n', '') END AS raw",
    )
    queue = _QUEUE.simpleString()
    items = f"concat(array(CAST(NULL AS {queue})), coalesce(if(known, entry.queues, NULL), array()))"
    unfolded = coded.selectExpr("*", f"{_text(batch.ns)} AS ns", f"posexplode({items}) AS (row, item)")
    values = {name: f"CASE WHEN row = 0 AND known THEN entry.{name} END" for name in _CHANGES.fields}
    return unfolded.selectExpr(*_columns(CHANGES, values | _OF_CHANGES | _of_place(batch)))


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _of_place(batch: Batch) -> dict[str, str]:
    return {
        "ns": _text(batch.ns),
        "era": f"{batch.era}",
        "ord": f"version + {batch.era * ERA_SHIFT}L",
        "ingested_ms": f"{batch.ingested_ms}L",
    }


def _key(condition: str, *names: str) -> str:
    """To sort and shuffle by; null where a name is missing."""
    there = " AND ".join(f"{name} IS NOT NULL" for name in names)
    return f"if({condition} AND {there}, xxhash64({', '.join(('ns', *names))}), NULL)"


_READABLE: Final = f"row = 0 AND code NOT IN ({Kind.HOLE:d}, {Kind.UNREADABLE:d})"
_OF_CHANGES: Final = {
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


def _rows_of_pulses(judged: DataFrame, batch: Batch) -> DataFrame:
    """What is not readable, or of another kind, has no row there."""
    seats = judged.where(f"NOT hole AND reason IS NULL AND told = {_GAPS}").selectExpr(
        "version", "ms", "entry", "explode(entry.rows) AS seat"
    )
    buckets = seats.selectExpr("*", "explode(seat.h) AS bucket").where("size(bucket) = 2")
    return buckets.selectExpr(*_columns(PULSES, _OF_PULSES | _of_place(batch)))


_OF_PULSES: Final = {
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
    kinds = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return [f"CAST({values.get(name, 'NULL')} AS {kind}) AS `{name}`" for name, kind in kinds]


CHANGE_FIELDS: Final = _CHANGES.fields
CHANGES_FORM: Final = Form(_judged(_CHANGES), _rows_of_changes)
PULSES_FORM: Final = Form(_judged(_PULSES), _rows_of_pulses)
