"""Examples in documents, as steps that can be run.

A shell runs each block fenced as `sh`. A block fenced as `json` or `text` right after it is the expected output:

- JSON is compared as a value, in which the string `…` matches anything.
- Text is compared line by line. `…` matches any characters, a line with nothing but `…` matches any number of lines,
  and blanks match any number of blanks.

A block fenced as `sh terminal` keeps running. The next step begins when its expected output has appeared.
"""

import json
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 180.0
"""Ample, for a machine that does much else."""
STOP_SECONDS = 20.0
COMMAND_SECONDS = 60.0
ANYTHING = "…"
REDIS_CLI = '''#!{python}
"""The part of redis-cli that the documents use, for machines without it."""
import sys
import redis

option, value, *command = sys.argv[1:]
url = value if option == "-u" else f"redis://127.0.0.1:{{value}}"
client = redis.Redis.from_url(url, protocol=2, socket_timeout=10)
try:
    reply = client.execute_command(*command)
except redis.ConnectionError:
    if command[0] != "SHUTDOWN":
        raise
    reply = b""
if isinstance(reply, dict):
    reply = "\\n".join(f"{{name}}:{{value}}" for name, value in reply.items())
print(reply.decode() if isinstance(reply, bytes) else reply)
'''
_FENCE = re.compile(r"^```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    command: str
    keeps_running: bool
    answer: str | None
    """None if the document shows no output."""
    answer_is_json: bool = False

    def is_answered_by(self, output: str) -> bool:
        if self.answer is None:
            return True
        if not self.answer_is_json:
            return text_matches(self.answer, output)
        return value_matches(json.loads(self.answer), json.loads(output))


def read_steps(document: str, replacements: Mapping[str, str]) -> Iterator[Step]:
    """The steps in the order of the document. The replacements are made in commands and in answers."""
    longest_first = sorted(replacements, key=len, reverse=True)
    shown = "|".join(map(re.escape, longest_first))
    document = re.sub(shown, lambda found: replacements[found[0]], document) if shown else document
    blocks = list(_FENCE.finditer(document))
    for at, block in enumerate(blocks):
        if block["language"] != "sh":
            continue
        after = blocks[at + 1] if at + 1 < len(blocks) else None
        answer = after if after and after["language"] in {"json", "text"} else None
        yield Step(
            command=block["body"],
            keeps_running=block["rest"].strip() == "terminal",
            answer=answer["body"] if answer else None,
            answer_is_json=bool(answer and answer["language"] == "json"),
        )


def text_matches(shown: str, output: str) -> bool:
    pattern = "".join(_line_pattern(line) for line in shown.strip().splitlines())
    return re.fullmatch(pattern, output.strip() + "\n") is not None


def _line_pattern(line: str) -> str:
    if line.strip() == ANYTHING:
        return r"(?:[^\n]*\n)*?"
    parts = (r"[ \t]+".join(re.escape(word) for word in re.split(r"[ \t]+", part)) for part in line.split(ANYTHING))
    return r"[^\n]*".join(parts) + r"[ \t]*\n"


def value_matches(shown: Any, output: Any) -> bool:
    if shown == ANYTHING:
        return True
    if isinstance(shown, dict) and isinstance(output, dict):
        return shown.keys() == output.keys() and all(value_matches(value, output[key]) for key, value in shown.items())
    if isinstance(shown, list) and isinstance(output, list):
        return len(shown) == len(output) and all(map(value_matches, shown, output))
    return bool(shown == output)


def run(step: Step, folder: Path, env: Mapping[str, str], seconds: float = COMMAND_SECONDS) -> None:
    done = subprocess.run(
        ["sh", "-c", step.command], cwd=folder, env=env, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{step.command}exited with {done.returncode}:\n{done.stdout}{done.stderr}"
    assert step.is_answered_by(done.stdout), f"{step.command}printed:\n{done.stdout}\ninstead of:\n{step.answer}"


@contextmanager
def terminal(step: Step, logs: Path, folder: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Keeps the command running. It begins when the expected output has appeared, and ends with Ctrl-C."""
    logs.mkdir()
    output, log = logs / "output", logs / "log"
    with output.open("w") as out, log.open("w") as errors:
        process = subprocess.Popen(["sh", "-c", step.command], cwd=folder, env=env, stdout=out, stderr=errors)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not step.is_answered_by(output.read_text()):
            assert process.poll() is None, f"{step.command}exited:\n{output.read_text()}{log.read_text()}"
            assert time.monotonic() < deadline, f"{step.command}printed:\n{output.read_text()}{log.read_text()}"
            time.sleep(0.02)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            exit_code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert exit_code == 0, log.read_text()


def write_redis_cli(folder: Path) -> None:
    client = folder / "redis-cli"
    client.write_text(REDIS_CLI.format(python=sys.executable))
    client.chmod(client.stat().st_mode | stat.S_IXUSR)
