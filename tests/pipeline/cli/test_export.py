"""The stream as files."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook.cli.main import run as routebook
from routebook_pipeline.source.options import SourceOptions
from routebook_pipeline.source.positions import EntryId
from tests.pipeline.source.streams import BEGAN_MS, URL_ENV, Stream, payload_of


@pytest.fixture
def stream(store_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    monkeypatch.setenv(URL_ENV, store_url)
    monkeypatch.setenv("ROUTEBOOK_NAMESPACE", namespace)
    with Stream(store_url, namespace) as opened:
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


def test_a_hole_in_the_stream_is_not_exported_as_if_it_were_whole(stream: Stream, tmp_path: Path) -> None:
    """`import` would refuse the file; the one of before stays."""
    stream.delete(stream.fill(9)[4])
    file = tmp_path / "changes.jsonl"
    file.write_text("of yesterday")
    assert export(file) == 4
    assert file.read_text() == "of yesterday"
    assert list(tmp_path.iterdir()) == [file]
