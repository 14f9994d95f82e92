"""The package as a file for executors."""

import zipfile
from pathlib import Path

import pytest

from routebook_pipeline.own_package import zip_own_package


def test_the_file_holds_the_package_and_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = zip_own_package()
    with zipfile.ZipFile(made) as archive:
        assert {"routebook_pipeline/__init__.py", "routebook_pipeline/source/__init__.py"} <= set(archive.namelist())
    before = made.stat().st_mtime_ns
    assert zip_own_package() == made
    assert made.stat().st_mtime_ns == before
