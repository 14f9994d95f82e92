"""Runs `routebook` in a pseudo-terminal of a given width, as a person does, and types answers."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_DEADLINE_S = 30.0


@dataclass(frozen=True)
class Shown:
    code: int
    text: str
    """What the terminal received, without the escape sequences of colours."""

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def run_in_terminal(
    *words: str, columns: int, answers: dict[str, str] | None = None, env: dict[str, str] | None = None
) -> Shown:
    """`answers`: question -> what is typed when it appears."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color", **(env or {})}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environ.pop(name, None)
    script = Path(sys.executable).with_name("routebook")
    with subprocess.Popen([script, *words], stdin=other, stdout=other, stderr=other, env=environ) as process:
        os.close(other)
        text = _read(main, process, dict(answers or {}))
        code = process.wait(_DEADLINE_S)
    os.close(main)
    return Shown(code, text)


def _read(main: int, process: "subprocess.Popen[bytes]", answers: dict[str, str]) -> str:
    received, deadline = b"", time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        if not select.select([main], [], [], 0.1)[0]:
            continue
        try:
            part = os.read(main, 65536)
        except OSError:  # the terminal is closed: the process has ended
            break
        if not part:
            break
        received += part
        for question in [one for one in answers if one in received.decode(errors="replace")]:
            os.write(main, answers.pop(question).encode() + b"\n")
    else:
        process.kill()
    return _ESCAPES.sub("", received.decode(errors="replace")).replace("\r\n", "\n")
