"""Options that hold a duration: 30s, 5m."""

from typing import Any

import click

from routebook_pipeline.times import parse_duration


class Duration(click.ParamType[float]):
    """Seconds."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ARG002
        return value if isinstance(value, float) else parse_duration(value) / 1_000


DURATION = Duration()
