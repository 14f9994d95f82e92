"""Files that the pipeline writes on this machine: replaced atomically, and its own package as a zip for executors."""

import os
import zipfile
from pathlib import Path

import pytest

from routebook.cli.main import run as routebook
from routebook_pipeline.local_files import replace_atomically, zip_own_package
from routebook_pipeline.session import with_own_package


def test_a_new_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "new" / "answer.json"
    with replace_atomically(out) as temporary:
        temporary.write_text("all")
        assert not out.exists()
    assert out.read_text() == "all"
    assert list(out.parent.iterdir()) == [out]


def test_readers_see_the_old_file_until_then_and_after_a_failure(tmp_path: Path) -> None:
    out = tmp_path / "answer.json"
    out.write_text("yesterday")

    def fail() -> None:
        with replace_atomically(out) as temporary:
            temporary.write_text("incompl")
            assert out.read_text() == "yesterday"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert out.read_text() == "yesterday"
    assert list(tmp_path.iterdir()) == [out]


def test_a_symbolic_link_is_kept_and_its_target_replaced(tmp_path: Path) -> None:
    out, link = tmp_path / "answers" / "today.json", tmp_path / "latest.json"
    link.symlink_to(out)
    for text in ("one", "two"):
        with replace_atomically(link) as temporary:
            temporary.write_text(text)
        assert link.is_symlink()
        assert out.read_text() == text


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with replace_atomically(pipe) as temporary:
            temporary.write_text("all")
        assert os.read(reader, 10) == b"all"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), replace_atomically(tmp_path) as temporary:
        temporary.write_text("all")
    assert list(tmp_path.iterdir()) == []


def test_the_zip_contains_the_package_and_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    package = zip_own_package()
    with zipfile.ZipFile(package) as archive:
        assert {"routebook_pipeline/__init__.py", "routebook_pipeline/source/__init__.py"} <= set(archive.namelist())
    before = package.stat().st_mtime_ns
    assert zip_own_package() == package
    assert package.stat().st_mtime_ns == before


def test_the_package_command_writes_the_zip_and_prints_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "new" / "routebook.zip"
    assert routebook(["pipeline", "package", "--out", str(out)]) == 0
    assert out.read_bytes() == zip_own_package().read_bytes()
    program = Path(capsys.readouterr().out.removesuffix("\n"))
    assert (program.name, program.parent.name) == ("submit.py", "routebook_pipeline")
    assert program.is_file()
    assert routebook(["pipeline", "package", "--out", str(tmp_path)]) == 3


def test_the_users_python_files_are_sent_besides_the_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ours = str(zip_own_package())
    assert with_own_package("") == ours
    assert with_own_package("a.zip,s3://b/c.py") == f"{ours},a.zip,s3://b/c.py"
