"""`routebook expiry status|release`"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from routebook.cli.service import Service, as_json, asks_service, print_json
from routebook.cli.tables import print_fields

_A_MOMENT_MS = 10**12
"""Larger numbers of milliseconds are moments since 1970 (from 2001 on), not durations."""


@click.group("expiry")
def command() -> None:
    """Mass expiry: is one held, whose; let it happen."""


@command.command("status")
@as_json
@asks_service
def status(service: Service, json_: bool) -> None:
    """Whether silent brokers are held back because they are too many at once."""
    _print(service.get("/v1/expiry"), json_)


@command.command("release")
@as_json
@asks_service
def release(service: Service, json_: bool) -> None:
    """Let the held expiry happen: the brokers really are dead."""
    _print(service.ask("POST", "/v1/expiry/release"), json_)


def _print(state: dict[str, Any], json_: bool) -> None:
    if json_:
        print_json(state)
    else:
        print_fields(flat(state))


def flat(value: dict[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    """Nested names joined by blanks: `leader token`."""
    for name, inner in value.items():
        shown = f"{before} {name}".strip().replace("_", " ")
        if isinstance(inner, dict):
            yield from flat(inner, shown)
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            for number, item in enumerate(inner, 1):
                yield from flat(item, f"{shown} {number}")
        elif name.endswith("_ms") and isinstance(inner, int) and inner > _A_MOMENT_MS:
            yield shown.removesuffix(" ms"), datetime.fromtimestamp(inner / 1000, UTC).isoformat(" ", "milliseconds")
        else:
            yield shown, inner
