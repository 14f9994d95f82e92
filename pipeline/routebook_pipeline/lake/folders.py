"""Where Arrow and the `deltalake` wheel are asked: what they raise becomes an error of ours here, and nowhere else.

The files below a folder, on this machine or in an object store.

Three readers open the same place, and each spells it in its own way: Spark, the `deltalake` wheel, and Arrow for the
little that is done to single files. Credentials are those of the environment.

What Spark needs besides to reach an object store: pip brings it with Hadoop's client only.
"""

import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow
import pyarrow.fs as arrow_fs
from deltalake.exceptions import DeltaError
from pyarrow import parquet
from pyspark.sql import SparkSession

from routebook_pipeline.errors import MAKE_ROOM, UnreachableError, WrongUsageError

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_STACK: Final = re.compile(r"\s+\d+: (?:<unknown>|[\w:<>]+\n).*", re.DOTALL)
"""The wheel adds where in its code it was, for its authors."""
LONGEST_REASON: Final = 300


@contextmanager
def reaching(place: str, doing: str) -> Iterator[None]:
    """UnreachableError: `place` cannot be `doing`."""
    try:
        yield
    except (DeltaError, OSError, pyarrow.ArrowException) as error:
        raise UnreachableError(f"{place} cannot be {doing}: {_reason(error)} {_advice(error)}") from error


def _reason(error: Exception) -> str:
    """On one line: Spark hands on the text of an error by the line."""
    words = " ".join(_STACK.sub("", _COLOURS.sub("", str(error))).replace("↳", "").split()).rstrip(".")
    if len(words) > LONGEST_REASON:
        return f"{words[:LONGEST_REASON]}…"
    return f"{words or type(error).__name__}."


def _advice(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return MAKE_ROOM
    return (
        "Is it there, and may this process read and write it? For an object store, its credentials are those of the "
        "environment."
    )


SCHEMES: Final = ("s3", "s3a", "gs", "abfss", "hdfs")
_PAGES: Final = (
    {"max_rows_per_page": 200_000} if "max_rows_per_page" in signature(parquet.ParquetWriter).parameters else {}
)
"""As Spark's files have (session.py). An Arrow that cannot be told so does not cut pages by rows."""
_LOCAL_ADDRESS: Final = re.compile(r"(?://(?:localhost)?)?(/(?!/).*)", re.DOTALL)


@dataclass(frozen=True)
class FoundFile:
    path: str
    """Below the folder."""
    size: int
    modified_ms: int


@dataclass(frozen=True)
class Folder:
    """`uri`: an absolute path, or an address with one of the schemes."""

    uri: str

    @classmethod
    def of(cls, text: str) -> "Folder":
        """Addresses of object stores are taken as they are, as their own tools do; those of files are decoded."""
        scheme, separator, rest = text.partition(":")
        if separator and scheme == "file":
            found = _LOCAL_ADDRESS.fullmatch(unquote(rest))
            folder = cls((found[1].rstrip("/") or "/") if found else "")
        elif separator and scheme in SCHEMES:
            folder = cls(text.rstrip("/") if rest.strip("/") and rest.startswith("//") else "")
        else:
            folder = cls("" if not text or "://" in text else str(Path(text).expanduser().absolute()))
        if not folder.uri:
            allowed = ", ".join(f"{name}://" for name in SCHEMES)
            raise WrongUsageError(f"The place {text!r} cannot be used. Allowed: a folder, or {allowed}.")
        return folder

    def __truediv__(self, name: str) -> "Folder":
        return Folder(f"{self.uri}/{name}")

    @property
    def for_wheel(self) -> str:
        """It decodes addresses, and takes paths as they are."""
        scheme, separator, rest = self.uri.partition("://")
        store, slash, path = rest.partition("/")
        return f"{scheme}://{store}{slash}{quote(path)}" if separator else self.uri

    @property
    def for_spark(self) -> str:
        """Hadoop has only the newer of its two clients for S3."""
        scheme, separator, rest = self.uri.partition("://")
        if not separator:
            return f"file://{self.uri}"
        return f"{'s3a' if scheme == 's3' else scheme}://{rest}"

    @property
    def for_spark_to_read(self) -> str:
        """Names given to a reader are patterns, and a folder may have brackets in its name."""
        return re.sub(r"([][{}*?\\])", r"\\\1", self.for_spark)

    @cached_property
    def for_arrow(self) -> tuple[arrow_fs.FileSystem, str]:
        if "://" not in self.uri:
            return arrow_fs.LocalFileSystem(), self.uri
        system, path = arrow_fs.FileSystem.from_uri(re.sub("^s3a:", "s3:", self.for_wheel))
        return system, path

    def files(self) -> list[FoundFile]:
        """Everything below, in the order of names; nothing when there is no such folder."""
        with self._asked("listed") as (system, root):
            below = system.get_file_info(arrow_fs.FileSelector(root, allow_not_found=True, recursive=True))
        found = [
            FoundFile(info.path[len(root) :].lstrip("/"), info.size or 0, (info.mtime_ns or 0) // 1_000_000)
            for info in below
            if info.type == arrow_fs.FileType.File
        ]
        return sorted(found, key=lambda file: file.path)

    def folders(self) -> list[str]:
        """Names of those right below; none when there is no such folder."""
        with self._asked("listed") as (system, root):
            below = system.get_file_info(arrow_fs.FileSelector(root, allow_not_found=True))
        return sorted(info.base_name for info in below if info.type == arrow_fs.FileType.Directory)

    def check_for(self, paths: Sequence[str]) -> None:
        """UnreachableError names the first of these files that is not there."""
        with self._asked("looked into") as (system, root):
            found = system.get_file_info([f"{root}/{path}" for path in paths]) if paths else []
        for path, info in zip(paths, found, strict=True):
            if info.type == arrow_fs.FileType.NotFound:
                raise self._lacks(path)

    def footer(self, path: str) -> parquet.FileMetaData:
        with self._asked("read") as (system, root):
            return parquet.read_metadata(f"{root}/{path}", filesystem=system)

    def batches(self, path: str) -> Iterator[pyarrow.RecordBatch]:
        with self._asked("read") as (system, root):
            try:
                opened = system.open_input_file(f"{root}/{path}")
            except FileNotFoundError as error:
                raise self._lacks(path) from error
            with opened:
                yield from parquet.ParquetFile(opened).iter_batches()

    @contextmanager
    def writer(self, path: str, schema: pyarrow.Schema) -> Iterator[parquet.ParquetWriter]:
        with self._asked("written to") as (system, root):
            system.create_dir(f"{root}/{path}".rpartition("/")[0])
            place = f"{root}/{path}"
            with parquet.ParquetWriter(place, schema, compression="zstd", filesystem=system, **_PAGES) as writer:
                yield writer

    def size(self, path: str) -> int:
        with self._asked("looked into") as (system, root):
            return int(system.get_file_info(f"{root}/{path}").size)

    def text(self, path: str) -> str | None:
        """Of a small file; None when it is not there."""
        with self._asked("read") as (system, root):
            try:
                with system.open_input_stream(f"{root}/{path}") as stream:
                    return bytes(stream.read()).decode()
            except FileNotFoundError:
                return None

    def mark(self, name: str) -> None:
        """With an empty file."""
        with self._asked("written to") as (system, root):
            system.open_output_stream(f"{root}/{name}").close()

    def remove(self) -> None:
        """With all that is in it."""
        with self._asked("removed") as (system, root):
            try:
                system.delete_dir(root)
            except FileNotFoundError:
                return

    @contextmanager
    def _asked(self, doing: str) -> Iterator[tuple[arrow_fs.FileSystem, str]]:
        with reaching(f"The folder {self.uri}", doing):
            yield self.for_arrow

    def _lacks(self, path: str) -> UnreachableError:
        return UnreachableError(
            f"A file of the table is missing: {self.uri}/{path}. Nothing is answered from the rest: bring the file "
            "back from a backup, or restore the lake to an earlier version."
        )


COORDINATES: Final = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfss": "org.apache.hadoop:hadoop-azure",
    "gs": "org.apache.hadoop:hadoop-gcp",
}
"""Of Hadoop's own connectors, each of the same version as the rest of Hadoop."""


def check_spark_reaches(spark: SparkSession, folder: Folder) -> None:
    """UnreachableError says what to give: Java would say it in a hundred lines, and only when something is written."""
    scheme = folder.for_spark.partition("://")[0]
    if scheme == "file":
        return
    java: Any = spark._jvm
    try:
        java.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, spark._jsc.hadoopConfiguration())
    except Exception as error:
        hadoop = java.org.apache.hadoop.util.VersionInfo.getVersion()
        raise UnreachableError(
            f"Spark has no connector for {scheme}://, so it cannot reach {folder.uri}. {what_to_give(scheme, hadoop)}"
        ) from error


def what_to_give(scheme: str, hadoop: str) -> str:
    coordinates = COORDINATES.get(scheme)
    if coordinates is None:
        return "Give it one with `--conf spark.jars=…`."
    return (
        f"Give it one with `--conf spark.jars.packages={coordinates}:{hadoop}`, which Spark fetches at its start, or "
        "name the same jars with `--conf spark.jars=…`."
    )
