"""Which entries are readable, and why the others are not.

`from_json` alone does not tell: it answers an empty payload, `{}` and a missing field with nulls and without a mark,
reads `5` as the string "5", and does not look at what follows the first object. So the payload is parsed inside a list
inside an object (what follows it is then a mistake), and an entry that looks odd is parsed a second time, with the types
its values really have, to name the field.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

_OPTIONS = {"columnNameOfCorruptRecord": "marked", "allowSingleQuotes": "false"}


@dataclass(frozen=True)
class ListRule:
    """What every item of a list must have."""

    strings: tuple[str, ...]
    numbers: tuple[str, ...]
    unless: str | None = None
    """With a value here, an item needs no numbers."""

    def broken(self, items: Column) -> Column:
        """Whether an item lacks something, or has it in another type, which `from_json` turned into null."""

        def lacks(item: Column) -> Column:
            without = _any(item[name].isNull() for name in self.numbers)
            excused = F.lit(False) if self.unless is None else F.coalesce(item[self.unless], F.lit(0)) != 0
            return item.isNull() | _any(item[name].isNull() for name in self.strings) | (~excused & without)

        return F.exists(items, lacks)


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
        named = tuple(name for name, kind in self.fields.items() if isinstance(kind, StringType))
        return named + tuple(name for rule in self.lists.values() for name in rule.strings)

    def requiring(self, name: str) -> list[int]:
        return [code for code, names in self.required.items() if name in names]

    def allowing(self, name: str) -> list[int]:
        return self.requiring(name) + [code for code, names in self.optional.items() if name in names]


def judge(entries: DataFrame, grammar: Grammar, known_format: int) -> DataFrame:
    """Adds `entry` (the fields), `told` (the number of its kind) and `reason` to entries with a `payload`: null when
    readable, else `utf8`, `json`, `field:<name>`, `newer` or `kind`. A kind without a number is readable.
    """
    text = F.col("payload").cast("string")
    wrapped = StructType([StructField("d", ArrayType(grammar.entry)), StructField("marked", StringType())])
    parsed = F.from_json(F.concat(F.lit('{"d":['), F.col("text"), F.lit("]}")), wrapped, _OPTIONS)
    once = (
        entries.withColumn("text", F.when(F.is_valid_utf8(text), text))
        .withColumn("parsed", parsed)
        .withColumn("entry", F.when(F.size("parsed.d") == 1, F.get("parsed.d", F.lit(0))))
        .withColumn("told", _code_of(F.col("entry.kind"), grammar))
        .withColumn("types", F.when(_looks_odd(grammar), F.map_entries(F.from_json("text", "MAP<STRING, VARIANT>"))))
    )
    entry = F.col("entry")
    reason = (
        F.when(F.col("text").isNull(), "utf8")
        .when(entry.isNull(), "json")
        .when(entry["v"] > known_format, "newer")
        .when(entry["v"].isNull(), "field:v")
        .when(entry["kind"].isNull() | _is_no_string("kind"), "kind")
        .when(F.col("types").isNotNull(), F.coalesce(*(_wrong(name, grammar) for name in grammar.fields)))
    )
    return once.withColumn("reason", reason).drop("text", "parsed", "types")


def _code_of(kind: Column, grammar: Grammar) -> Column:
    known = F.create_map(*(F.lit(part) for pair in grammar.codes.items() for part in pair))
    return F.coalesce(F.try_element_at(known, kind), F.lit(grammar.unknown))


def _looks_odd(grammar: Grammar) -> Column:
    """Cheap, and true of every entry in which something is wrong."""
    entry, told = F.col("entry"), F.col("told")
    unquoted = rf'"({"|".join(grammar.strings)})"\s*:\s*[^"\sn]'
    lacking = [told.isin(grammar.requiring(name)) & entry[name].isNull() for name in _named(grammar.required)]
    broken = [F.coalesce(rule.broken(entry[name]), F.lit(False)) for name, rule in grammar.lists.items()]
    odd = F.col("parsed.marked").isNotNull() | F.col("text").rlike(unquoted)
    return entry.isNotNull() & _any([odd, *lacking, *broken])


def _wrong(name: str, grammar: Grammar) -> Column:
    value, told = F.col("entry")[name], F.col("told")
    mistyped = _is_no_string(name) if isinstance(grammar.fields[name], StringType) else value.isNull() & _is_there(name)
    rule = grammar.lists.get(name)
    if rule is not None:
        mistyped = mistyped | F.coalesce(rule.broken(value), F.lit(False)) | _items_have_no_strings(name, rule)
    wrong = (told.isin(grammar.requiring(name)) & value.isNull()) | (told.isin(grammar.allowing(name)) & mistyped)
    return F.when(wrong, F.lit(f"field:{name}"))


def _type_of(name: str) -> Column:
    """Of the last value under this name; null when the entry was not looked at twice, or has none."""
    values = F.filter("types", lambda pair: pair["key"] == name)
    return F.schema_of_variant(F.try_element_at(values, F.lit(-1))["value"])


def _is_there(name: str) -> Column:
    return F.coalesce(_type_of(name) != "VOID", F.lit(False))


def _is_no_string(name: str) -> Column:
    return F.coalesce(~_type_of(name).isin("STRING", "VOID"), F.lit(False))


def _items_have_no_strings(name: str, rule: ListRule) -> Column:
    kind = _type_of(name)
    missing = _any(~kind.rlike(rf"[<\s]{inner}: STRING\b") for inner in rule.strings)
    return F.coalesce(kind.startswith("ARRAY<OBJECT") & missing, F.lit(False))


def _named(table: Mapping[int, tuple[str, ...]]) -> list[str]:
    return sorted({name for names in table.values() for name in names})


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(or_, conditions, F.lit(False))
