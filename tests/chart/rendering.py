"""Runs Helm on the chart. Renderings are cached by Helm version, release name, values and Kubernetes version."""

import json
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.architecture.sources import ROOT
from tests.chart.objects import Object, read
from tests.chart.tools import HELMS

import yaml  # isort: skip

CHART = ROOT / "helm" / "routebook"
VALUE_SETS = sorted((CHART / "ci").glob("*.yaml"))
NEWEST = HELMS[-1]
NAMESPACE = "fleet"


@dataclass(frozen=True)
class HelmResult:
    """Exit code and output of one run of helm."""

    code: int
    text: str
    errors: str


def run(helm: Path, *arguments: str, values: str = "") -> HelmResult:
    # Isolated from the user's own Helm configuration: repositories, plugins, a cluster.
    environ = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "KUBECONFIG": "/nonexistent"}
    done = subprocess.run(
        [str(helm), *arguments], input=values, capture_output=True, text=True, timeout=60, check=False, env=environ
    )
    return HelmResult(done.returncode, done.stdout, done.stderr)


@cache
def _template(helm: Path, release: str, values: str, kube_version: str) -> HelmResult:
    arguments = ["template", release, str(CHART), "--namespace", NAMESPACE, "--values", "-"]
    return run(helm, *arguments, *(["--kube-version", kube_version] if kube_version else []), values=values)


def template(
    values: dict[str, Any] | str = "",
    *,
    helm: Path = NEWEST,
    release: str = "rb",
    kube_version: str = "",
) -> HelmResult:
    # Every JSON text is also YAML.
    text = values if isinstance(values, str) else json.dumps(values, sort_keys=True)
    return _template(helm, release, text, kube_version)


def render(values: dict[str, Any] | str = "", **options: Any) -> list[Object]:
    result = template(values, **options)
    assert result.code == 0, result.errors
    return read(result.text)


def refusal(values: dict[str, Any] | str, **options: Any) -> str:
    result = template(values, **options)
    assert result.code != 0, "these values were accepted"
    return result.errors


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Merges values as Helm does."""
    result = dict(base)
    for key, value in more.items():
        inner = result.get(key)
        result[key] = merged(inner, value) if isinstance(value, dict) and isinstance(inner, dict) else value
    return result


@cache
def default_values() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


def value_set(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text()) or {}
