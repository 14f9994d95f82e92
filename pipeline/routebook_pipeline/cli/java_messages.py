"""What Java prints, kept out of answers and off people's terminals, but at hand when it does not start."""

import os
import sys
import threading
from collections import deque
from typing import Final

KEPT_LINES: Final = 200
TOLD_LINES: Final = 3


class JavaMessages:
    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._kept: deque[str] = deque(maxlen=KEPT_LINES)
        out, self.descriptor = os.pipe()
        # Must go on as long as the JVM: a full pipe would stop it.
        self._reader = threading.Thread(target=self._read, args=(out,), name="java-messages", daemon=True)
        self._reader.start()

    def started(self) -> None:
        """The JVM has its own copy; ours is closed so that the reader ends when the JVM does."""
        os.close(self.descriptor)

    def last(self) -> str:
        """What it said last, for an error."""
        telling = [line for line in self._kept if line and not line.startswith(("WARNING:", "\tat "))]
        return " / ".join(telling[-TOLD_LINES:])

    def _read(self, out: int) -> None:
        with os.fdopen(out, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._kept.append(line.rstrip())
                if self._shown:
                    sys.stderr.write(line)
