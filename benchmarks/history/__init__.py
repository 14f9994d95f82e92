"""What `benchmarks/pipeline.py` compares: a history of any length, and the same questions asked with other tools."""

import sys
from pathlib import Path

# `make bench` installs them beside everything else: nothing but these modules may come to lean on them.
sys.path.append(str(Path(sys.prefix) / "rivals"))
