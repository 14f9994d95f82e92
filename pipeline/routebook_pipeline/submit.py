"""`spark-submit …/routebook_pipeline/submit.py run availability …`: the commands, with Spark started already."""

import sys
from pathlib import Path

# spark-submit puts this file's folder first on the path, and our modules would be found there by their bare names.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [str(_HERE.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != _HERE)]

from routebook_pipeline.cli.main import run  # noqa: E402 after the path

if __name__ == "__main__":
    sys.exit(run("submit.py"))
