"""The form of a finding (`shapes.ANOMALIES`)."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

SEVERITIES: Final = {
    "flapping": "warning",
    "mass-loss": "critical",
    "headless": "critical",
    "two-masters": "critical",
    "slow-detection": "warning",
    "late-heartbeats": "warning",
    "churn-spike": "warning",
    "skew": "info",
    "read-only": "critical",
    "history": "critical",
}
"""Critical: messages were lost or refused meanwhile, or no other answer can be trusted. Info: nothing is broken."""


def finding(
    found: DataFrame,
    rule: str,
    subject: Column,
    *,
    between: tuple[str, str],
    value: Column,
    threshold: Column,
    versions: Column,
) -> DataFrame:
    return found.select(
        F.lit(rule).alias("rule"),
        F.lit(SEVERITIES[rule]).alias("severity"),
        subject.alias("subject"),
        F.col(between[0]).cast("long").alias("from_ms"),
        F.col(between[1]).cast("long").alias("to_ms"),
        value.cast("double").alias("value"),
        threshold.cast("double").alias("threshold"),
        F.sort_array(versions.cast("array<bigint>")).alias("versions"),
    )


def subject_of(*names: str) -> Column:
    return F.concat_ws("/", *[F.col(name).cast("string") for name in names])


def all_versions() -> Column:
    """Of findings that are told as one: what proves any of them."""
    return F.array_distinct(F.flatten(F.collect_list("versions")))


def none_of() -> Column:
    """A finding about the state of things, or about the pulse: no entry of the history proves it."""
    return F.array().cast("array<bigint>")
