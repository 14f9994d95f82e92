"""The parts of `benchmarks/pipeline.py`: a synthetic history of any length, and the questions in other tools."""

import sys
from pathlib import Path

# `make bench` installs the other tools in a folder of their own, so that only these modules can import them.
sys.path.append(str(Path(sys.prefix) / "rivals"))
