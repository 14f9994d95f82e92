"""The program for `spark-submit`: the pipeline's commands inside a Spark that is already running.

For example: `spark-submit …/routebook_pipeline/submit.py run availability …`
"""

import sys
from pathlib import Path

# spark-submit puts this file's folder first on the path, so our modules could hide others of the same name.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [str(_HERE.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != _HERE)]

from routebook_pipeline.cli.main import run  # noqa: E402 after the path

if __name__ == "__main__":
    sys.exit(run("submit.py"))
