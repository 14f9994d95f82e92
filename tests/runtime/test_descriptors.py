"""The limit of open files, in a process that can spoil its own."""

import subprocess
import sys

import pytest

ASK = """
import logging, resource, sys
from routebook.runtime.ports import allow_connections
logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
soft, hard, count = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
allow_connections(count)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def ask(soft: int, hard: int, count: int) -> list[str]:
    words = [sys.executable, "-c", ASK, str(soft), str(hard), str(count)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("soft", "hard", "count", "after"),
    [(256, 3000, 1000, 2256), (256, 1000, 10, 276), (900, 1000, 10, 900)],
)
def test_the_soft_limit_is_raised_to_what_connections_need(soft: int, hard: int, count: int, after: int) -> None:
    assert ask(soft, hard, count) == [f"{after} {hard}"]


def test_a_limit_that_is_too_low_is_logged() -> None:
    log, limits = ask(256, 1000, 20_000)
    assert limits == "1000 1000"
    assert "may open 1000 files" in log
    assert "beyond about 744 in total, new connections" in log
