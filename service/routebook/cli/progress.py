"""One line on the terminal that says how far a long run has come. Nowhere else: logs and pipes are spared."""

import sys
import time
from types import TracebackType
from typing import Final, Self

import click

PERIOD_S: Final = 0.1


class ProgressLine:
    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._parts: dict[str, str] = {}
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown and self._parts:
            self._write("")

    def routes_of(self, address: str, done: int, total: int) -> None:
        self.tell(f"{address}:", f"{done} of {total} routes")

    def tell(self, what: str, how_far: str) -> None:
        if not self._shown:
            return
        self._parts[what] = how_far
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PERIOD_S
            self._write("; ".join(f"{name} {text}" for name, text in self._parts.items()))

    def _write(self, text: str) -> None:
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)
