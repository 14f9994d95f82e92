"""Runs promtool. Tests that need it or Prometheus are skipped without; Debian's package `prometheus` has both."""

import shutil
import subprocess
from pathlib import Path

import pytest

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


def promtool(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = ["promtool", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
