"""The tools that `make chart` fetches: Helm, schemas, a YAML parser.

Without them, test modules that import this one are skipped.
"""

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
        "two releases of Helm and the Kubernetes schemas are missing; `make chart` fetches them "
        f"(or set {HELM_VARIABLE}=/path/to/helm3:/path/to/helm4)",
        allow_module_level=True,
    )

# Appended last, so that these packages do not shadow the project's own.
if str(TOOLS / "packages") not in sys.path:
    sys.path.append(str(TOOLS / "packages"))
