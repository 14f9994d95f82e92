"""What the simulation did, one JSON object a line, in the order in which it knew. docs/simulate.md has every field."""

import json
import time
from types import TracebackType
from typing import Final, Self, TextIO

FORMAT: Final = 1


def now_ms() -> int:
    return int(time.time() * 1000)


class Journal:
    """`with Journal(file)` closes the file. None: written nowhere."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()

    def tell(self, event: str, **fields: object) -> None:
        """`n` counts the lines; `ms` is when this line was written, by the clock on the wall."""
        if self._file is None:
            return
        self._number += 1
        line = {"n": self._number, "ms": now_ms(), "event": event, **fields}
        self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        # Whole lines for whoever reads along, and for whoever kills us.
        self._file.flush()
