"""Parses entries of a stream into rows of the lake. Data frames in, data frames out; everything runs in the JVM.

Whatever its payload, an entry becomes at least its row 0 in `changes`, and no entry stops the query. An entry that is
not readable gets a reason.

`from_json` alone does not find all mistakes. It returns nulls, without marking the row, for an empty payload, `{}` and
a missing field; it reads `5` as the string "5"; and it ignores text after the first object. So the payload is parsed as
the only item of a list in an object, where text after it is a syntax error. An entry that looks wrong is parsed again
with the types that its values really have, which names the wrong field.

The rules are SQL text: as column objects they take thousands of calls into the JVM, a second for every batch.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from routebook_pipeline.history import ERA_SHIFT
from routebook_pipeline.kinds import FORMER_TITLES, KNOWN_FORMAT, Kind
from routebook_pipeline.schemas import CHANGES, PULSES
from routebook_pipeline.source.decoding import (
    CHANGE_FORMAT,
    GAPS_CODE,
    GAPS_FORMAT,
    QUEUE_ITEM,
    EntryFormat,
    ListRule,
)
from routebook_pipeline.source.reading import HOLE_PREFIX

NEWER: Final = "newer"
"""The reason of an entry whose format (`v`) is newer than this release."""

_JSON_OPTIONS = {"columnNameOfCorruptRecord": "corrupt", "allowSingleQuotes": "false"}


def _is_broken(rule: ListRule, items: str) -> str:
    """Whether a field of an item is missing, or has another type, which `from_json` turned into null."""
    numbers = _any(f"item.{name} IS NULL" for name in rule.numbers)
    if rule.unless is not None:
        numbers = f"coalesce(item.{rule.unless}, 0) = 0 AND ({numbers})"
    strings = _any(f"item.{name} IS NULL" for name in rule.strings)
    return f"coalesce(exists({items}, item -> item IS NULL OR {strings} OR ({numbers})), false)"


def validate(entries: DataFrame, entry_format: EntryFormat, known_format: int) -> DataFrame:
    """Adds to entries with a `payload`: `entry` (the fields), `kind_code` (the number of the kind), and `reason`. The
    reason is null when the entry is readable, else `utf8`, `json`, `field:<name>`, `newer` or `kind`. An entry of an
    unknown kind is readable.

    An `entry` that the source has decoded already is readable, and has no payload.
    """
    wrapped = StructType([StructField("d", ArrayType(entry_format.schema)), StructField("corrupt", StringType())])
    codes = ", ".join(f"'{kind}', {code}" for kind, code in entry_format.codes.items())
    named_type = "named_struct('name', p.key, 'type', schema_of_variant(p.value))"
    typed = f"transform(map_entries(from_json(text, 'MAP<STRING, VARIANT>')), p -> {named_type})"
    parsed = "CASE WHEN size(parsed.d) = 1 THEN parsed.d[0] END"
    is_decoded = "entry" in entries.columns
    if is_decoded:
        entries = entries.withColumnRenamed("entry", "decoded")
    return (
        entries.withColumn(
            "text", F.expr("CASE WHEN is_valid_utf8(CAST(payload AS STRING)) THEN CAST(payload AS STRING) END")
        )
        .withColumn("parsed", F.from_json(F.expr("concat('{\"d\":[', text, ']}')"), wrapped, _JSON_OPTIONS))
        .withColumn("entry", F.expr(f"coalesce(decoded, {parsed})" if is_decoded else parsed))
        .withColumn("kind_code", F.expr(f"coalesce(try_element_at(map({codes}), entry.kind), {entry_format.unknown})"))
        .withColumn(
            "types",
            F.expr(
                f"CASE WHEN text IS NOT NULL AND entry IS NOT NULL AND ({_looks_wrong(entry_format)}) THEN {typed} END"
            ),
        )
        .withColumn(
            "reason", F.expr(_reason(entry_format, known_format, "decoded IS NOT NULL" if is_decoded else "false"))
        )
        .drop("text", "parsed", "types", "decoded")
    )


def _reason(entry_format: EntryFormat, known_format: int, is_decoded: str) -> str:
    fields = " ".join(f"WHEN {_is_wrong(name, entry_format)} THEN 'field:{name}'" for name in entry_format.fields)
    return f"""CASE
        WHEN {is_decoded} THEN NULL
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
    broken = [_is_broken(rule, f"entry.{name}") for name, rule in entry_format.lists.items()]
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
        mistyped += [_is_broken(rule, value), _items_have_no_strings(name, rule)]
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
    content = [name for name in ("payload", "entry") if name in entries.columns]
    return entries.selectExpr(
        f"startswith(entry_id, '{HOLE_PREFIX}') AS hole",
        f"split(replace(entry_id, '{HOLE_PREFIX}', ''), '-') AS id",
        *content,
    ).selectExpr(
        "hole",
        "CAST(id[0] AS BIGINT) AS ms",
        "CAST(id[1] AS BIGINT) AS version",
        "CAST(if(hole, get_json_object(CAST(payload AS STRING), '$.to_version'), id[1]) AS BIGINT) AS last_version",
        *content,
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
    queue = QUEUE_ITEM.simpleString()
    items = f"concat(array(CAST(NULL AS {queue})), coalesce(if(known, entry.queues, NULL), array()))"
    exploded = coded.selectExpr("*", f"{_literal(batch.ns)} AS ns", f"posexplode({items}) AS (row, item)")
    values = {name: f"CASE WHEN row = 0 AND known THEN entry.{name} END" for name in CHANGE_FORMAT.fields}
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
    seats = validated.where(f"NOT hole AND reason IS NULL AND kind_code = {GAPS_CODE}").selectExpr(
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
    "changes": EntryParser(CHANGE_FORMAT, _rows_of_changes),
    "pulses": EntryParser(GAPS_FORMAT, _rows_of_pulses),
}
"""By the name of the table."""
