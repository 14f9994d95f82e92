"""The stream as files."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook.cli.main import run as routebook
from routebook_pipeline.cli.export import lines_of
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


def test_every_entry_is_a_line_with_its_id_and_its_text(
    stream: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = SourceOptions.chunk + 7
    stream.fill(last)
    spoilt = b"{\xff}"
    odd = '{"broker": "集群\\n\u2028"}'
    stream.append([(EntryId(2 * BEGAN_MS, last + 1), odd.encode()), (EntryId(2 * BEGAN_MS, last + 2), spoilt)])
    file = tmp_path / "new" / "changes.jsonl"
    assert export(file) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{last + 2} entries" in shown.err

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [EntryId.parse(line["id"]).version for line in lines] == list(range(1, last + 3))
    assert lines[6] == {"id": f"{BEGAN_MS + 7}-7", "d": payload_of(7).decode()}
    assert lines[-2]["d"] == odd
    assert lines[-1]["d"] == f"not UTF-8: {base64.b64encode(spoilt).decode()}"
    assert list(file.parent.iterdir()) == [file]


def test_what_is_trimmed_is_not_there_and_an_empty_stream_is_an_empty_file(stream: Stream, tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    assert export(file) == 0
    assert file.read_text() == ""
    stream.trim_below(stream.fill(20)[10])
    assert export(file) == 0
    assert [json.loads(line)["id"].split("-")[1] for line in file.read_text().splitlines()] == [
        str(version) for version in range(11, 21)
    ]


def test_a_file_that_cannot_be_made_leaves_nothing_behind(stream: Stream, tmp_path: Path) -> None:
    stream.fill(3)
    taken = tmp_path / "folder"
    taken.mkdir()
    assert export(taken) == 3
    assert list(tmp_path.iterdir()) == [taken]


def test_a_hole_in_the_stream_is_not_exported_as_if_it_were_whole(
    stream: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`import` would refuse the file; the one of before stays."""
    stream.delete(stream.fill(9)[4])
    file = tmp_path / "changes.jsonl"
    file.write_text("of yesterday")
    assert export(file) == 4
    assert file.read_text() == "of yesterday"
    assert list(tmp_path.iterdir()) == [file]
    said = capsys.readouterr().err
    assert "RB_MISSING: the changes 5 to 5" in said
    assert "though earlier ones are" in said
    assert "--url-env" in said
    assert "import them" not in said, "that is what it was to make possible"


def test_what_is_lost_while_it_is_read_is_told_with_what_helps(store_url: str, stream: Stream) -> None:
    """`export` reads in chunks, and a store does not wait for it. An export has no place to go on from, as a lake has:
    its errors say what to do with an export.
    """
    ids = stream.fill(300)
    with StreamReader(URL_ENV, stream.namespace) as reader:
        lines = lines_of(reader)
        next(lines)
        stream.trim_below(ids[249])
        with pytest.raises(HistoryError, match=r"RB_MISSING.* to 249 .*trimmed while it was read.*Run it again"):
            list(lines)
        assert len(list(lines_of(reader))) == 51, "which helps"

        ids = stream.fill(500, first=301)
        lines = lines_of(reader)
        next(lines)
        stream.delete(ids[-1])
        with pytest.raises(HistoryError, match=r"RB_MISSING: the changes 500 to 500 .*though earlier ones are"):
            list(lines)

        stream.drop()
        stream.fill(300)
        lines = lines_of(reader)
        next(lines)
        stream.drop()
        stream.fill(3, ms=BEGAN_MS + 60_000)
        with pytest.raises(HistoryError, match=r"RB_FORK.*was at version 300 and is at 3\b.*Run it again") as raised:
            list(lines)
        assert "lake" not in str(raised.value)
        assert len(list(lines_of(reader))) == 3
