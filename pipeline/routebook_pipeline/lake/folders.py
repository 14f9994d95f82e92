"""Folders of a lake and the files in them, on this machine or in an object store.

Three libraries open the same folder, and each has its own form of its address: Spark, `deltalake`, and Arrow for work
on single files. Credentials come from the environment. Errors of Arrow and `deltalake` become UnreachableError here,
and nowhere else.
"""

import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import pyarrow
import pyarrow.fs as arrow_fs
from deltalake.exceptions import DeltaError
from pyarrow import parquet
from pyspark.sql import SparkSession

from routebook_pipeline.errors import MAKE_ROOM, UnreachableError, WrongUsageError, table_file_missing

SCHEMES: Final = ("s3", "s3a", "gs", "abfss", "hdfs")
CONNECTORS: Final = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfss": "org.apache.hadoop:hadoop-azure",
    "gs": "org.apache.hadoop:hadoop-gcp",
}
"""Maven coordinates of Hadoop's connectors to object stores, which pip does not install. Their version must be that of
Hadoop itself.
"""
MAX_REASON_LENGTH: Final = 300

_PAGE_OPTIONS: Final = (
    {"max_rows_per_page": 200_000} if "max_rows_per_page" in signature(parquet.ParquetWriter).parameters else {}
)
"""Pages as large as in Spark's files (session.py). Older releases of Arrow lack the option and do not limit rows."""
_LOCAL_ADDRESS: Final = re.compile(r"(?://(?:localhost)?)?(/(?!/).*)", re.DOTALL)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_NO_CONNECTOR: Final = re.compile(r"No FileSystem for scheme|ClassNotFoundException: Class org\.apache\.hadoop\.fs\.")
_STACK: Final = re.compile(r"\s+\d+: (?:<unknown>|[\w:<>]+\n).*", re.DOTALL)
"""The stack trace that `deltalake` appends to its messages."""


@contextmanager
def reaching(name: str, action: str) -> Iterator[None]:
    """Turns errors of `deltalake` and Arrow into UnreachableError: `name` cannot be `action`."""
    try:
        yield
    except (DeltaError, OSError, pyarrow.ArrowException) as error:
        raise UnreachableError(f"{name} cannot be {action}: {_reason(error)} {_advice(error)}") from error


def _reason(error: Exception) -> str:
    """On one line: Spark splits the text of an error at line breaks."""
    text = " ".join(_STACK.sub("", _COLOURS.sub("", str(error))).replace("↳", "").split()).rstrip(".")
    if len(text) > MAX_REASON_LENGTH:
        return f"{text[:MAX_REASON_LENGTH]}…"
    return f"{text or type(error).__name__}."


def _advice(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return MAKE_ROOM
    return (
        "Check that it exists, and that this process may read and write it. The credentials for an object store come "
        "from the environment."
    )


@dataclass(frozen=True)
class FoundFile:
    path: str
    """Relative to the folder."""
    size: int
    modified_ms: int


@dataclass(frozen=True)
class Folder:
    """`uri`: an absolute path, or an address with one of the schemes."""

    uri: str

    @classmethod
    def of(cls, text: str) -> "Folder":
        """Addresses with `file:` are decoded; those of object stores are used as given, as their own tools do."""
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
            raise WrongUsageError(f"{text!r} cannot be used as a folder. Allowed: a path, or {allowed}.")
        return folder

    def __truediv__(self, name: str) -> "Folder":
        return Folder(f"{self.uri}/{name}")

    @property
    def for_deltalake(self) -> str:
        """`deltalake` decodes addresses, and uses paths unchanged."""
        scheme, separator, rest = self.uri.partition("://")
        store, slash, path = rest.partition("/")
        return f"{scheme}://{store}{slash}{quote(path)}" if separator else self.uri

    @property
    def for_spark(self) -> str:
        """Hadoop has only the newer of its two S3 clients, which is called s3a."""
        scheme, separator, rest = self.uri.partition("://")
        if not separator:
            return f"file://{self.uri}"
        return f"{'s3a' if scheme == 's3' else scheme}://{rest}"

    @property
    def for_spark_reader(self) -> str:
        """Spark's readers take patterns, so brackets and the like in a folder's name are escaped."""
        return re.sub(r"([][{}*?\\])", r"\\\1", self.for_spark)

    @cached_property
    def for_arrow(self) -> tuple[arrow_fs.FileSystem, str]:
        if "://" not in self.uri:
            return arrow_fs.LocalFileSystem(), self.uri
        system, path = arrow_fs.FileSystem.from_uri(re.sub("^s3a:", "s3:", self.for_deltalake))
        return system, path

    def files(self) -> list[FoundFile]:
        """All files in the folder and in its subfolders, sorted by path; none when the folder does not exist."""
        with self._arrow("listed") as (system, root):
            infos = system.get_file_info(arrow_fs.FileSelector(root, allow_not_found=True, recursive=True))
        files = [
            FoundFile(info.path[len(root) :].lstrip("/"), info.size or 0, (info.mtime_ns or 0) // 1_000_000)
            for info in infos
            if info.type == arrow_fs.FileType.File
        ]
        return sorted(files, key=lambda file: file.path)

    def subfolders(self) -> list[str]:
        """Names of the direct subfolders; none when the folder does not exist."""
        with self._arrow("listed") as (system, root):
            infos = system.get_file_info(arrow_fs.FileSelector(root, allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == arrow_fs.FileType.Directory)

    def check_files_exist(self, paths: Sequence[str]) -> None:
        """UnreachableError names the first of these files that is missing."""
        with self._arrow("searched") as (system, root):
            infos = system.get_file_info([f"{root}/{path}" for path in paths]) if paths else []
        for path, info in zip(paths, infos, strict=True):
            if info.type == arrow_fs.FileType.NotFound:
                raise table_file_missing(f"{self.uri}/{path}")

    def footer(self, path: str) -> parquet.FileMetaData:
        with self._arrow("read") as (system, root):
            return parquet.read_metadata(f"{root}/{path}", filesystem=system)

    def batches(self, path: str) -> Iterator[pyarrow.RecordBatch]:
        with self._arrow("read") as (system, root):
            try:
                opened = system.open_input_file(f"{root}/{path}")
            except FileNotFoundError as error:
                raise table_file_missing(f"{self.uri}/{path}") from error
            with opened:
                yield from parquet.ParquetFile(opened).iter_batches()

    @contextmanager
    def writer(self, path: str, schema: pyarrow.Schema) -> Iterator[parquet.ParquetWriter]:
        with self._arrow("written to") as (system, root):
            file = f"{root}/{path}"
            system.create_dir(file.rpartition("/")[0])
            with parquet.ParquetWriter(file, schema, compression="zstd", filesystem=system, **_PAGE_OPTIONS) as writer:
                yield writer

    def size(self, path: str) -> int:
        with self._arrow("searched") as (system, root):
            return int(system.get_file_info(f"{root}/{path}").size)

    def text(self, path: str) -> str | None:
        """The text of a small file; None when it does not exist."""
        with self._arrow("read") as (system, root):
            try:
                with system.open_input_stream(f"{root}/{path}") as stream:
                    return bytes(stream.read()).decode()
            except FileNotFoundError:
                return None

    def touch(self, name: str) -> None:
        """Creates an empty file."""
        with self._arrow("written to") as (system, root):
            system.open_output_stream(f"{root}/{name}").close()

    def remove(self) -> None:
        """Removes the folder and everything in it."""
        with self._arrow("removed") as (system, root):
            try:
                system.delete_dir(root)
            except FileNotFoundError:
                return

    @contextmanager
    def _arrow(self, action: str) -> Iterator[tuple[arrow_fs.FileSystem, str]]:
        with reaching(f"The folder {self.uri}", action):
            yield self.for_arrow


_reached: Final[set[tuple[str, str]]] = set()
"""Applications of Spark, and the schemes for which they have a connector."""


def check_spark_reaches(spark: SparkSession, folder: Folder) -> None:
    """UnreachableError names the missing connector. Java would report it in a hundred lines, and only at the first
    write.
    """
    scheme = folder.for_spark.partition("://")[0]
    if scheme not in CONNECTORS:
        return
    application = (spark.sparkContext.applicationId, scheme)
    if application in _reached:
        return
    try:
        # Looks for the connector's class first, and then for the file, which is in no lake.
        spark.read.text((folder / "_no_such_file").for_spark_reader)
    except Exception as error:
        if _NO_CONNECTOR.search(str(error)):
            hadoop = spark.sql("SELECT java_method('org.apache.hadoop.util.VersionInfo', 'getVersion')").collect()[0][0]
            raise UnreachableError(
                f"Spark has no connector for {scheme}://, so it cannot reach {folder.uri}. "
                f"{connector_advice(scheme, hadoop)}"
            ) from error
        # The store's own errors are reported by what is done next, with the file that it is about.
    _reached.add(application)


def connector_advice(scheme: str, hadoop_version: str) -> str:
    coordinates = CONNECTORS.get(scheme)
    if coordinates is None:
        return "Name its jars with `--conf spark.jars=…`."
    return (
        f"Add `--conf spark.jars.packages={coordinates}:{hadoop_version}`, which Spark downloads when it starts, or "
        "name the same jars with `--conf spark.jars=…`."
    )
