"""Debian's `prometheus` brings both programs; where they are absent, what needs them is skipped."""

import shutil
import subprocess
from pathlib import Path

import pytest

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool on this machine")
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="there is no prometheus on this machine"
)


def promtool(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = ["promtool", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
