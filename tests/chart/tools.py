"""Helm, schemas, a reader of YAML: what `make chart` fetches. Without them, modules that import this are skipped."""

import os
import sys
from pathlib import Path

import pytest

TOOLS = Path(sys.prefix) / "chart-tools"
HELM_VARIABLE = "ROUTEBOOK_TEST_HELM"

_given = os.environ.get(HELM_VARIABLE, "")
HELMS = [Path(path) for path in _given.split(":") if path] or sorted(TOOLS.glob("helm-*"))
SCHEMAS = next(iter((TOOLS / "wheels").glob("kubernetes_validate-*.whl")), None)

if len(HELMS) < 2 or SCHEMAS is None:
    pytest.skip(
        "two releases of Helm and the schemas of Kubernetes are not here; `make chart` fetches them "
        f"(or {HELM_VARIABLE} names helm3:helm4)",
        allow_module_level=True,
    )

# Last, so that nothing of it stands before what the project itself has installed.
if str(TOOLS / "packages") not in sys.path:
    sys.path.append(str(TOOLS / "packages"))
