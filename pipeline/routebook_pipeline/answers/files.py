"""An answer as one Parquet file. What it rests on travels in the file's own metadata, under `routebook`."""

import json
from pathlib import Path
from typing import Any, Final

import pyarrow
import pyarrow.parquet
from pyarrow import fs

from routebook_pipeline.errors import UnreachableError

METADATA_KEY: Final = b"routebook"


def write_parquet(table: pyarrow.Table, statement: dict[str, Any], out: str) -> None:
    """To a path, or to an address that Arrow knows (s3://, gs://, hdfs://)."""
    told = table.replace_schema_metadata({METADATA_KEY: json.dumps(statement).encode()})
    try:
        if "://" in out:
            store, path = fs.FileSystem.from_uri(out)
            pyarrow.parquet.write_table(told, path, filesystem=store)
        else:
            Path(out).parent.mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(told, out)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise UnreachableError(f"{out} cannot be written: {error}. Name another place with --parquet.") from error
