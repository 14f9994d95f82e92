"""What the simulation did, one JSON object a line, in the order in which it knew. docs/simulate.md has every field."""

import json
import time
from typing import Final, TextIO

FORMAT: Final = 1


def now_ms() -> int:
    return int(time.time() * 1000)


class Journal:
    def __init__(self, file: TextIO | None = None) -> None:
        """None: written nowhere."""
        self._file = file
        self._number = 0

    def tell(self, event: str, **fields: object) -> None:
        """`n` counts the lines; `ms` is when this line was written, by the clock on the wall."""
        if self._file is None:
            return
        self._number += 1
        line = {"n": self._number, "ms": now_ms(), "event": event, **fields}
        self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        # Whole lines for whoever reads along, and for whoever kills us.
        self._file.flush()
