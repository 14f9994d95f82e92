"""--from, --to, --threshold."""

from collections.abc import Callable
from typing import Any

import click

from routebook_pipeline.history import Thresholds
from routebook_pipeline.times import When, parse_when


def _when(_: click.Context, __: click.Parameter, text: str | None) -> When | None:
    return None if text is None else parse_when(text)


def _thresholds(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Thresholds:
    from routebook_pipeline.cli.thresholds import parse_thresholds  # noqa: PLC0415 completion does not need it

    return parse_thresholds(given)


def when_option(flag: str, name: str, *, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # noqa: A002
    return click.option(flag, name, callback=_when, metavar="T", help=help)


def window_options(*, start: str, end: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a command `start` and `end`, each with what it means when it is left out."""

    def windowed(command: Callable[..., Any]) -> Callable[..., Any]:
        to = when_option("--to", "end", help=f"End, exclusive. Without: {end}.")
        return when_option("--from", "start", help=f"2026-05-01T12:00Z, -2h or now. Without: {start}.")(to(command))

    return windowed


with_window = window_options(start="a day before the end", end="as far as the history is complete")

with_thresholds = click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    callback=_thresholds,
    metavar="NAME=VALUE",
    help="objective=0.999, flap=30s, …; repeatable. A wrong name lists them all.",
)
