"""What a long run is doing, on standard error: one line that is rewritten on a terminal; elsewhere only what is worth a
line in a log.
"""

import sys
import threading
import time
from types import TracebackType
from typing import Final, Self

import click

PERIOD_S: Final = 0.25


class Progress:
    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._doing = ""
        self._since = time.monotonic()
        self._ended = threading.Event()
        # Spark's calls block: seconds that count up tell a slow start from a dead one.
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if self._shown:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._ticker.is_alive():
            self._ticker.join()
        self.clear()

    def doing(self, what: str) -> None:
        """Stands until the next, with the seconds it has taken."""
        with self._lock:
            self._doing, self._since = what, time.monotonic()
        self._draw()

    def log(self, line: str) -> None:
        """Stays on the terminal, and goes into logs."""
        with self._lock:
            click.echo(f"\r\x1b[K{line}" if self._shown else line, err=True)

    def clear(self) -> None:
        with self._lock:
            if self._shown and self._doing:
                self._doing = ""
                click.echo("\r\x1b[K", nl=False, err=True)

    def _tick(self) -> None:
        while not self._ended.wait(PERIOD_S):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            if self._shown and self._doing:
                took = int(time.monotonic() - self._since)
                text = f"{self._doing} … {took} s" if took else f"{self._doing} …"
                click.echo(f"\r\x1b[K{text}", nl=False, err=True)
