"""A file that is there whole, or as it was before."""

import os
from pathlib import Path

import pytest

from routebook_pipeline.local_files import replace_atomically


def test_what_is_written_is_there_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "new" / "answer.json"
    with replace_atomically(out) as fresh:
        fresh.write_text("all")
        assert not out.exists()
    assert out.read_text() == "all"
    assert list(out.parent.iterdir()) == [out]


def test_a_reader_sees_the_old_one_until_then_and_after_a_failure(tmp_path: Path) -> None:
    out = tmp_path / "answer.json"
    out.write_text("of yesterday")

    def fail() -> None:
        with replace_atomically(out) as fresh:
            fresh.write_text("ha")
            assert out.read_text() == "of yesterday"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert out.read_text() == "of yesterday"
    assert list(tmp_path.iterdir()) == [out]


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    out, link = tmp_path / "answers" / "today.json", tmp_path / "latest.json"
    link.symlink_to(out)
    for text in ("one", "two"):
        with replace_atomically(link) as fresh:
            fresh.write_text(text)
        assert link.is_symlink()
        assert out.read_text() == text


def test_a_device_or_a_pipe_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with replace_atomically(pipe) as fresh:
            fresh.write_text("all")
        assert os.read(reader, 10) == b"all"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), replace_atomically(tmp_path) as fresh:
        fresh.write_text("all")
    assert list(tmp_path.iterdir()) == []
