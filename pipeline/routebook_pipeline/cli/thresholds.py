"""`--threshold name=value`: every number of `history.Thresholds`, durations with their unit if liked."""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Final

from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.history import DEFAULTS, Thresholds
from routebook_pipeline.times import parse_duration

_TYPES: Final = {field.name: type(getattr(DEFAULTS, field.name)) for field in fields(Thresholds)}


def parse_thresholds(given: Iterable[str]) -> Thresholds:
    """A name may be written with dashes, and may leave its `_ms` out when the value brings a unit."""
    chosen: dict[str, float] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals:
            raise WrongUsageError(f"--threshold {one!r} has no value. Allowed: NAME=VALUE with NAME of {known()}.")
        field = _field(name)
        chosen[field] = _value(field, text)
    return replace(DEFAULTS, **chosen)  # type: ignore[arg-type]  # checked by _value, field by field


def known() -> str:
    return ", ".join(f"{name} ({getattr(DEFAULTS, name)})" for name in _TYPES)


def _field(name: str) -> str:
    spelled = name.strip().replace("-", "_")
    for candidate in (spelled, f"{spelled}_ms"):
        if candidate in _TYPES:
            return candidate
    raise WrongUsageError(f"There is no threshold {name!r}. Allowed, with their defaults: {known()}.")


def _value(field: str, text: str) -> float:
    try:
        value: float = _TYPES[field](text)
    except ValueError:
        if not field.endswith("_ms"):
            wanted = "a whole number" if _TYPES[field] is int else "a number"
            raise WrongUsageError(f"The threshold {field} is {wanted}, not {text!r}.") from None
        value = parse_duration(text)
    if not 0 <= value < float("inf"):
        raise WrongUsageError(f"The threshold {field} cannot be {text}. Allowed: 0 or more.")
    if field in {"objective", "mass_loss_share", "late_share"} and value > 1:
        raise WrongUsageError(f"The threshold {field} is a share, from 0 to 1, not {text}.")
    return value
