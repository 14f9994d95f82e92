"""The worked example of docs/pipeline.md is what the questions answer; its pictures are drawn from the same day."""

import re

import pytest

from tests.architecture.sources import ROOT
from tests.pipeline.example import tables
from tests.pipeline.pictures import ALL

DOCUMENT = (ROOT / "docs" / "pipeline.md").read_text()
TABLES = tables()


@pytest.mark.parametrize("name", TABLES)
def test_its_tables_are_the_answers(name: str) -> None:
    assert TABLES[name] in DOCUMENT, "print them anew: python -m tests.pipeline.example"


@pytest.mark.parametrize("name", ALL)
def test_its_pictures_are_those_of_the_day(name: str) -> None:
    drawn = (ROOT / "docs" / "images" / f"pipeline-{name}.svg").read_text()
    assert drawn == ALL[name](), "draw them anew: python -m tests.pipeline.pictures docs/images"
    assert f"(images/pipeline-{name}.svg)" in DOCUMENT


def test_the_twelve_questions_have_their_places() -> None:
    numbered = re.findall(r"^### (\d+)\. ([a-z-]+):", DOCUMENT, re.MULTILINE)
    assert [int(number) for number, _ in numbered] == list(range(1, 13))


def test_pictures_of_the_documents_are_small() -> None:
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size <= 300_000, picture.name
