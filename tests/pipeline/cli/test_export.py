"""Exporting the stream to a file."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook.cli.main import run as routebook
from routebook_pipeline.cli.export import export_lines
from routebook_pipeline.errors import HistoryError
from routebook_pipeline.source.options import SourceOptions
from routebook_pipeline.source.stream import EntryId, StreamReader
from tests.pipeline.source.streams import BEGAN_MS, URL_ENV, Stream, payload_of


@pytest.fixture
def stream(store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    monkeypatch.setenv(URL_ENV, store_url)
    monkeypatch.setenv("ROUTEBOOK_NAMESPACE", namespace_name)
    with Stream(store_url, namespace_name) as opened:
        yield opened


def export(file: Path) -> int:
    return routebook(["pipeline", "export", "--out", str(file)])


def test_every_entry_becomes_a_line_with_its_id_and_its_text(
    stream: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = SourceOptions.chunk + 7
    stream.fill(last)
    not_utf8 = b"{\xff}"
    unusual = '{"broker": "集群\\n\u2028"}'
    stream.append([(EntryId(2 * BEGAN_MS, last + 1), unusual.encode()), (EntryId(2 * BEGAN_MS, last + 2), not_utf8)])
    file = tmp_path / "new" / "changes.jsonl"
    assert export(file) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"{last + 2} entries" in printed.err

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [EntryId.parse(line["id"]).version for line in lines] == list(range(1, last + 3))
    assert lines[6] == {"id": f"{BEGAN_MS + 7}-7", "d": payload_of(7).decode()}
    assert lines[-2]["d"] == unusual
    assert lines[-1]["d"] == f"not UTF-8: {base64.b64encode(not_utf8).decode()}"
    assert list(file.parent.iterdir()) == [file]


def test_trimmed_entries_are_left_out_and_an_empty_stream_gives_an_empty_file(stream: Stream, tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    assert export(file) == 0
    assert file.read_text() == ""
    stream.trim_below(stream.fill(20)[10])
    assert export(file) == 0
    assert [json.loads(line)["id"].split("-")[1] for line in file.read_text().splitlines()] == [
        str(version) for version in range(11, 21)
    ]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(stream: Stream, tmp_path: Path) -> None:
    stream.fill(3)
    folder = tmp_path / "folder"
    folder.mkdir()
    assert export(folder) == 3
    assert list(tmp_path.iterdir()) == [folder]


def test_a_stream_with_a_hole_is_not_exported(
    stream: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`backfill --import` would refuse the file. The previous file stays."""
    stream.delete(stream.fill(9)[4])
    file = tmp_path / "changes.jsonl"
    file.write_text("previous file")
    assert export(file) == 4
    assert file.read_text() == "previous file"
    assert list(tmp_path.iterdir()) == [file]
    message = capsys.readouterr().err
    assert "RB_MISSING: the changes 5 to 5" in message
    assert "though earlier ones are" in message
    assert "--url-env" in message
    assert "import them" not in message, "the import needs this export"


def test_a_loss_during_the_export_is_reported_with_advice(store_url: str, stream: Stream) -> None:
    """`export` reads in chunks while the stream may be trimmed. It has no position to continue from, as a lake has, so
    its errors give other advice.
    """
    ids = stream.fill(300)
    with StreamReader(URL_ENV, stream.namespace) as reader:
        lines = export_lines(reader)
        next(lines)
        stream.trim_below(ids[249])
        with pytest.raises(HistoryError, match=r"RB_MISSING.* to 249 .*trimmed during the export.*Run it again"):
            list(lines)
        assert len(list(export_lines(reader))) == 51, "running it again works"

        ids = stream.fill(500, first=301)
        lines = export_lines(reader)
        next(lines)
        stream.delete(ids[-1])
        with pytest.raises(HistoryError, match=r"RB_MISSING: the changes 500 to 500 .*though earlier ones are"):
            list(lines)

        stream.drop()
        stream.fill(300)
        lines = export_lines(reader)
        next(lines)
        stream.drop()
        stream.fill(3, ms=BEGAN_MS + 60_000)
        with pytest.raises(HistoryError, match=r"RB_FORK.*was at version 300 and is at 3\b.*Run it again") as raised:
            list(lines)
        assert "lake" not in str(raised.value)
        assert len(list(export_lines(reader))) == 3
