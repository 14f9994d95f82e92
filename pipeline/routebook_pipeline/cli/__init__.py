"""`routebook pipeline`: found by the service's command line through the entry point `routebook.commands`.

Loaded for `--help` and completion, too: so neither Spark's modules nor any command's are imported here.
"""

from importlib.util import find_spec

# The service's command line takes this for "not installed" and says how to get it.
for _needed in ("pyspark", "pyarrow", "deltalake"):
    if find_spec(_needed) is None:
        raise ModuleNotFoundError(f"No module named {_needed!r}", name=_needed)

from routebook_pipeline.cli.main import pipeline  # noqa: E402 after the check

__all__ = ["pipeline"]
