"""The archive of Java's classes: written once, used when it is complete, and removed when nothing will use it."""

import os
import time
from pathlib import Path

import pytest

from routebook_pipeline.cli.spark import (
    ARCHIVE_MAGIC,
    ARCHIVING_S,
    OTHER_ARCHIVES_KEPT_S,
    class_archive,
)

HOME = Path("/usr/lib/jvm/some-java")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "routebook"


def path_in(option: str, name: str) -> Path:
    assert option.startswith(f'"-XX:{name}=')
    assert option.endswith('"')
    return Path(option.removeprefix(f'"-XX:{name}=').removesuffix('"'))


def make_older(file: Path, seconds: float) -> None:
    at = time.time() - seconds
    os.utime(file, (at, at))


def test_the_first_command_writes_an_archive_and_later_ones_use_it() -> None:
    written = path_in(class_archive(HOME), "ArchiveClassesAtExit")
    written.write_bytes(b"\0" * 16)
    assert class_archive(HOME) == "", "it is being written"
    written.write_bytes(ARCHIVE_MAGIC + b"rest")
    used = path_in(class_archive(HOME), "SharedArchiveFile")
    assert used.read_bytes() == ARCHIVE_MAGIC + b"rest"
    assert not written.exists()
    assert path_in(class_archive(HOME), "SharedArchiveFile") == used


def test_another_java_has_another_archive() -> None:
    one, other = (path_in(class_archive(Path(home)), "ArchiveClassesAtExit") for home in ("/java-17", "/java-21"))
    assert one.stem != other.stem


def test_an_archive_that_was_never_finished_is_written_again() -> None:
    written = path_in(class_archive(HOME), "ArchiveClassesAtExit")
    written.write_bytes(b"")
    make_older(written, ARCHIVING_S + 1)
    assert path_in(class_archive(HOME), "ArchiveClassesAtExit") == written
    assert not written.exists()


def test_the_archives_of_others_are_removed_after_a_month(cache: Path) -> None:
    class_archive(HOME)
    old, recent = cache / "classes-0.jsa", cache / "classes-1.jsa"
    for file, seconds in ((old, OTHER_ARCHIVES_KEPT_S + 1), (recent, OTHER_ARCHIVES_KEPT_S - 60)):
        file.write_bytes(ARCHIVE_MAGIC)
        make_older(file, seconds)
    class_archive(HOME)
    assert (old.exists(), recent.exists()) == (False, True)
