"""Which entries are readable, and why the others are not.

`from_json` alone does not tell: it answers an empty payload, `{}` and a missing field with nulls and without a mark,
reads `5` as the string "5", and does not look at what follows the first object. So the payload is parsed inside a list
inside an object (what follows it is then a mistake), and an entry that looks odd is parsed a second time, with the
types its values really have, to name the field.

The rules are written as SQL: as objects they are thousands of calls into the JVM, a second for every batch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

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
