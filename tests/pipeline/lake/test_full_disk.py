"""A lake on a full disk: nothing is committed, and no files are left over."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.lake import maintenance
from routebook_pipeline.lake.commit import commit
from routebook_pipeline.lake.tables import Lake, Position
from tests.pipeline.lake.streams import START_MS, entries, frame, paths, payload, versions

SIZE = 4 << 20
HOUR_MS = 3_600_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system, mounted for the test."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a file system can be mounted by root only, with the program mount")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield disk
    # Lazily: a failed writer of Spark does not close its file.
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.slow
def test_a_write_that_does_not_fit_leaves_nothing_behind(spark: SparkSession, small_disk: Path) -> None:
    lake = Lake(str(small_disk / "lake"), "ns")
    table = lake.changes
    table.create()
    commit(frame(spark, entries(1, 40, step_ms=HOUR_MS)).repartition(2), table, ingested_ms=5)
    before, held = paths(table), versions(spark, table)

    # Entries of an unknown kind are kept as raw text, so they stay large.
    large = [
        (f"{START_MS + n * HOUR_MS}-{n}", payload(n, kind="of-tomorrow", text=secrets.token_hex(64 << 10)))
        for n in range(41, 41 + SIZE // (64 << 10))
    ]
    with pytest.raises(Exception, match="No space left on device"):
        commit(frame(spark, large), table, ingested_ms=5)
    assert paths(table) == before
    assert table.pin().position == Position(0, 40)

    # The same when files are joined, without Spark.
    (small_disk / "filler").write_bytes(b"\0" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize))
    with pytest.raises(UnreachableError, match="Make room"):
        maintenance.compact_table(table)
    assert paths(table) == before

    (small_disk / "filler").unlink()
    assert maintenance.compact_table(table).into == 1
    assert commit(frame(spark, entries(41, 42, step_ms=HOUR_MS)), table, ingested_ms=5) is not None
    assert versions(spark, table) == [*held, (41, 41), (42, 42)]
