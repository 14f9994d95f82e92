"""From entries of a stream to rows of the lake. Pure: data frames in, data frames out, and everything in the JVM.

Whatever its payload, an entry becomes at least its row 0 in `changes`, and none stops the query.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
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

from routebook_pipeline.kinds import BY_TITLE, KNOWN_FORMAT, OF_EVERY_ENTRY, OPTIONAL, REQUIRED, Kind
from routebook_pipeline.lake.readable import Grammar, ListRule, judge
from routebook_pipeline.schemas import CHANGES, ERA_SHIFT, PULSES

HOLE_PREFIX: Final = "hole:"
"""Of the id of a row that the source made up. No entry of the stream has such an id, whatever kind it claims."""

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
    codes={title: int(kind) for title, kind in BY_TITLE.items()},
    required={int(kind): names for kind, names in REQUIRED.items()},
    optional={int(kind): OPTIONAL.get(kind, ()) + OF_EVERY_ENTRY for kind in REQUIRED},
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
class Place:
    """Where a batch belongs. `ingested_ms`: see `schemas.CHANGES`."""

    ns: str
    era: int
    ingested_ms: int


@dataclass(frozen=True)
class Form:
    """How the entries of one stream become rows of its table: `judged` keeps one row an entry, `rows` unfolds it."""

    judged: Callable[[DataFrame, int], DataFrame]
    rows: Callable[[DataFrame, Place], DataFrame]


def parse(entries: DataFrame, ns: str, era: int, ingested_ms: int, *, known_format: int = KNOWN_FORMAT) -> DataFrame:
    """Entries (`schemas.SOURCE`, holes among them) to rows of `schemas.CHANGES`."""
    return CHANGES_FORM.rows(CHANGES_FORM.judged(located(entries), known_format), Place(ns, era, ingested_ms))


def parse_pulses(
    entries: DataFrame, ns: str, era: int, ingested_ms: int, *, known_format: int = KNOWN_FORMAT
) -> DataFrame:
    """Entries to rows of `schemas.PULSES`. What is not readable, or of another kind, has no row there."""
    return PULSES_FORM.rows(PULSES_FORM.judged(located(entries), known_format), Place(ns, era, ingested_ms))


def located(entries: DataFrame) -> DataFrame:
    """Each with where it is: `hole`, `ms`, `version`, and `last_version`, which is another one only in a hole. Taken
    from the id, so that what the lake holds already is left out without being parsed.
    """
    hole = F.col("entry_id").startswith(HOLE_PREFIX)
    parts = F.split(F.regexp_replace("entry_id", f"^{HOLE_PREFIX}", ""), "-")
    version = parts[1].cast("bigint")
    end = F.get_json_object(F.col("payload").cast("string"), "$.to_version").cast("bigint")
    return entries.select(
        hole.alias("hole"),
        parts[0].cast("bigint").alias("ms"),
        version.alias("version"),
        F.when(hole, end).otherwise(version).alias("last_version"),
        "payload",
    )


def above(entries: DataFrame, version: int) -> DataFrame:
    """What ends above `version`; a hole that begins at or below it begins right behind it."""
    begins = F.greatest("version", F.lit(version + 1).cast("bigint"))
    return entries.where(F.col("last_version") > version).withColumn("version", begins)


def _judged(grammar: Grammar) -> Callable[[DataFrame, int], DataFrame]:
    def judged(entries: DataFrame, known_format: int) -> DataFrame:
        reason = F.when(~F.col("hole"), F.col("reason"))
        return judge(entries, grammar, known_format).withColumn("reason", reason)

    return judged


def _rows_of_changes(judged: DataFrame, place: Place) -> DataFrame:
    hole, told, reason = F.col("hole"), F.col("told"), F.col("reason")
    code = F.when(hole, int(Kind.HOLE)).when(reason.isNotNull(), int(Kind.UNREADABLE)).otherwise(told)
    kind = F.when(hole, Kind.HOLE.title).when(reason.isNotNull(), Kind.UNREADABLE.title).otherwise(F.col("entry.kind"))
    readable = ~hole & reason.isNull()
    known = readable & (told != int(Kind.UNKNOWN))
    entry = F.col("entry")
    coded = judged.select(
        "ms", "version", "last_version", "payload", "entry", "reason", hole, readable.alias("readable"),
        known.alias("known"), code.alias("code"), kind.alias("kind"),
    )  # fmt: skip
    queues = F.when(F.col("known"), entry["queues"])
    itself = F.array(F.lit(None).cast(_QUEUE))
    unfolded = coded.select("*", F.posexplode(F.concat(itself, F.coalesce(queues, F.array()))).alias("row", "item"))
    return unfolded.select(*_columns(CHANGES, _columns_of_changes(place)))


def _columns_of_changes(place: Place) -> dict[str, Column]:
    entry, item, code = F.col("entry"), F.col("item"), F.col("code")
    known, hole, reason = F.col("known"), F.col("hole"), F.col("reason")
    itself = F.col("row") == 0
    ns = F.lit(place.ns)
    cluster, broker = F.when(known, entry["cluster"]), F.when(known, entry["broker"])
    grouped = cluster.isNotNull() & broker.isNotNull()
    of_the_seat = {
        column: F.when(itself & known, entry[name])
        for column, name in {"broker_id": "id", **{name: name for name in _CHANGES.fields}}.items()
        if column in CHANGES.names
    }
    told = F.when(itself & F.col("readable"), F.struct(entry["cause"], entry["actor"], entry["source"]))
    return of_the_seat | {
        "ns": ns,
        "era": F.lit(place.era),
        "version": F.col("version"),
        "row": F.col("row"),
        "ord": F.lit(place.era * ERA_SHIFT) + F.col("version"),
        "ms": F.col("ms"),
        "kind": F.col("kind"),
        "code": code,
        "v": F.when(~hole, entry["v"]),
        "cluster": cluster,
        "broker": broker,
        "cause": F.coalesce(reason, told["cause"]),
        "topic": item["t"],
        "removed": F.when(~itself, F.coalesce(item["x"], F.lit(0)) != 0),
        "read_queues": item["r"],
        "write_queues": item["w"],
        "perm": F.when(itself, of_the_seat["perm"]).otherwise(item["p"]),
        "flags": item["f"],
        "from_version": F.when(hole, F.col("version")),
        "to_version": F.when(hole, F.col("last_version")),
        "actor": told["actor"],
        "source": told["source"],
        "seat_key": F.when(itself & grouped & entry["id"].isNotNull(), F.xxhash64(ns, cluster, broker, entry["id"])),
        "group_key": F.when(grouped, F.xxhash64(ns, cluster, broker)),
        "queue_key": F.when(~itself & grouped, F.xxhash64(ns, item["t"], cluster, broker)),
        # Spark breaks base64 into lines.
        "raw": F.when(code.isin(int(Kind.UNKNOWN), int(Kind.UNREADABLE)), F.translate(F.base64("payload"), "\r\n", "")),
        "ingested_ms": F.lit(place.ingested_ms),
    }


def _rows_of_pulses(judged: DataFrame, place: Place) -> DataFrame:
    readable = ~F.col("hole") & F.col("reason").isNull() & (F.col("told") == _GAPS)
    seats = judged.where(readable).select("version", "ms", "entry", F.explode("entry.rows").alias("seat"))
    buckets = seats.select("*", F.explode("seat.h").alias("bucket"))
    entry, seat, bucket = F.col("entry"), F.col("seat"), F.col("bucket")
    columns = {
        "ns": F.lit(place.ns),
        "era": F.lit(place.era),
        "version": F.col("version"),
        "ord": F.lit(place.era * ERA_SHIFT) + F.col("version"),
        "ms": F.col("ms"),
        **{name: entry[name] for name in ("worker", "from_ms", "to_ms")},
        "cluster": seat["c"],
        "broker": seat["b"],
        "broker_id": seat["i"],
        "bucket": F.get(bucket, F.lit(0)).try_cast("int"),
        "count": F.get(bucket, F.lit(1)),
        "max_ms": seat["max"],
    }
    return buckets.where(F.size("bucket") == 2).select(*_columns(PULSES, columns))


def _columns(schema: StructType, values: dict[str, Column]) -> list[Column]:
    def column(name: str, kind: DataType) -> Column:
        return values.get(name, F.lit(None)).cast(kind).alias(name)

    return [column(field.name, field.dataType) for field in schema.fields]


CHANGES_FORM: Final = Form(_judged(_CHANGES), _rows_of_changes)
PULSES_FORM: Final = Form(_judged(_PULSES), _rows_of_pulses)
