"""The package as a file for executors."""

import zipfile
from pathlib import Path

import pytest

from routebook.cli.main import run as routebook
from routebook_pipeline.local_files import zip_own_package
from routebook_pipeline.session import with_own_package


def test_the_file_holds_the_package_and_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = zip_own_package()
    with zipfile.ZipFile(made) as archive:
        assert {"routebook_pipeline/__init__.py", "routebook_pipeline/source/__init__.py"} <= set(archive.namelist())
    before = made.stat().st_mtime_ns
    assert zip_own_package() == made
    assert made.stat().st_mtime_ns == before


def test_a_command_gives_it_to_who_uses_spark_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    given = tmp_path / "new" / "routebook.zip"
    assert routebook(["pipeline", "package", "--out", str(given)]) == 0
    assert given.read_bytes() == zip_own_package().read_bytes()
    program = Path(capsys.readouterr().out.removesuffix("\n"))
    assert (program.name, program.parent.name) == ("submit.py", "routebook_pipeline")
    assert program.is_file()
    assert routebook(["pipeline", "package", "--out", str(tmp_path)]) == 3


def test_files_of_the_user_are_sent_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ours = str(zip_own_package())
    assert with_own_package("") == ours
    assert with_own_package("a.zip,s3://b/c.py") == f"{ours},a.zip,s3://b/c.py"
