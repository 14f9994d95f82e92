"""The command line of `backfill`."""

from typing import Any

import pytest

from routebook_pipeline.cli.backfill import command


def parsed(*words: str) -> dict[str, Any]:
    return command.make_context("backfill", list(words)).params


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["--import", "a.jsonl"], ("a.jsonl",)),
        (["--import", "a.jsonl", "b.jsonl", "c.jsonl"], ("a.jsonl", "b.jsonl", "c.jsonl")),
        (["--import=a.jsonl", "b.jsonl", "--again"], ("a.jsonl", "b.jsonl")),
        (["--import", "a.jsonl", "--import", "b.jsonl"], ("a.jsonl", "b.jsonl")),
        (["--again", "--import", "a", "b", "--lake", "l", "--import", "c", "d"], ("a", "b", "c", "d")),
        (["--import", "s3://bucket/2026 05/a.jsonl", "gs://b//c"], ("s3://bucket/2026 05/a.jsonl", "gs://b//c")),
        ([], ()),
    ],
)
def test_import_takes_all_file_names_after_it(words: list[str], files: tuple[str, ...]) -> None:
    assert parsed(*words)["files"] == files


def test_other_options_keep_their_values() -> None:
    given = parsed("--import", "a", "b", "--from", "-2d", "--threshold", "flap=30s", "--conf", "spark.x=y")
    assert given["files"] == ("a", "b")
    assert given["start"].ago_ms == 2 * 86_400_000
    assert given["conf"] == ("spark.x=y",)


@pytest.mark.parametrize("words", [["a.jsonl"], ["--again", "a.jsonl"], ["--import", "a", "--lake", "l", "b"]])
def test_a_word_without_an_option_is_refused(words: list[str]) -> None:
    with pytest.raises(Exception, match="unexpected extra argument"):
        parsed(*words)
