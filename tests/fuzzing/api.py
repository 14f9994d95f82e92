"""Schemathesis: requests made from the description of the API, and every response checked against it."""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.architecture.sources import ROOT
from tests.runtime.running import Running

TOOLS = ROOT / ".venv" / "fuzz-tools"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
STREAMS = {"/v1/watch"}
OF_THE_PORT = ("408", "413", "414", "421", "429", "431")
"""Limits of the port (docs/limits.md) and the `Host` are checked before it is known which operation is asked for."""
LEFT_OUT = {"follow", "min_version"}
"""Responses with `follow` never end, and a version that does not exist yet is a documented 504."""


def fuzz_api(service: Running, source: random.Random, seconds: float) -> str:
    assert TOOLS.is_dir(), "Schemathesis is not installed; run `make fuzz`"
    description = service.get("/openapi.json").json()
    for path in STREAMS:
        del description["paths"][path]
    for item in description["paths"].values():
        for operation in item.values():
            parameters = operation.get("parameters", [])
            operation["parameters"] = [one for one in parameters if one["name"] not in LEFT_OUT]
            for status in OF_THE_PORT:
                operation["responses"].setdefault(status, {"description": "An answer of the whole port."})
    with tempfile.TemporaryDirectory() as folder:
        schema = Path(folder) / "openapi.json"
        schema.write_text(json.dumps(description))
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", str(schema)),
                *("--url", service.http, "--checks", CHECKS, "--max-time", str(max(int(seconds), 1))),
                *("--seed", str(source.randrange(2**32)), "--continue-on-failure", "--max-failures", "20"),
                *("--suppress-health-check", "all", "--request-timeout", "10", "--warnings", "off"),
            ],
            env={**os.environ, "PYTHONPATH": f"{TOOLS}:{ROOT}"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=seconds * 3 + 120,
            check=False,
        )
    assert ended.returncode == 0, f"Schemathesis found something.\n{ended.stdout[-20_000:]}\n{ended.stderr[-2_000:]}"
    return ended.stdout.strip().splitlines()[-1]
