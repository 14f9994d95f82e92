"""Lengths of time as people write them: `30s`, `500ms`, `2m`, `1h`."""

import re
from typing import Final

import click

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_WRITTEN: Final = re.compile(r"(?P<number>\d{1,9}(?:\.\d{1,6})?)(?P<unit>ms|s|m|h|)")


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """Seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        found = _WRITTEN.fullmatch(str(value))
        if not found:
            self.fail(
                f"{value!r} is no length of time. Examples: 30s, 500ms, 2m, 1h; a number alone is seconds.", param, ctx
            )
        return float(found["number"]) * _UNITS_S[found["unit"]]

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002 click's signature
        return "TIME"


DURATION: Final = Duration()
