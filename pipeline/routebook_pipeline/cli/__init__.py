"""`routebook pipeline`: the service's command line finds it through the entry point `routebook.commands`.

It is loaded for `--help` and completion too, so it imports neither Spark nor any command.
"""

from importlib.util import find_spec

# The service's command line takes this error for "not installed" and says how to install the pipeline.
for _required in ("pyspark", "pyarrow", "deltalake"):
    if find_spec(_required) is None:
        raise ModuleNotFoundError(f"No module named {_required!r}", name=_required)

from routebook_pipeline.cli.main import pipeline  # noqa: E402 after the check

__all__ = ["pipeline"]
