"""Shows on standard error what a long command is doing.

On a terminal this is one line with the current step and its seconds. Everywhere else only log lines are written.
"""

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


class Progress:
    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._step: RichProgress | None = None
        """The line that is shown now."""
        # Batches are committed, and logged, in a thread of Spark.
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def show(self, step: str) -> None:
        """Shows the current step, with the seconds that it has taken, until `clear` or the next step. The seconds are
        counted in a thread, because Spark's calls block: they tell a slow start from one that hangs.
        """
        with self._lock:
            self.clear()
            if self._is_terminal:
                self._step = _step_line(step)
                self._step.start()

    def log(self, line: str) -> None:
        """Writes a line that stays."""
        with self._lock:
            if self._step is not None:
                self._step.console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                click.echo(line, err=True)

    def clear(self) -> None:
        """Removes the current step from the terminal, for example before an answer is printed."""
        with self._lock:
            step, self._step = self._step, None
            if step is not None:
                step.stop()


def _step_line(step: str) -> "RichProgress":
    # Rich takes a tenth of a second to import, and is needed on a terminal only.
    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    line = RichProgress(
        SpinnerColumn("line"),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        # An answer may be redirected to a file meanwhile.
        redirect_stdout=False,
    )
    line.add_task(step, total=None)
    return line
