"""The tables and images of docs/pipeline.md are those of the example day."""

import re

import pytest

from tests.architecture.sources import ROOT
from tests.pipeline.example import tables
from tests.pipeline.pictures import ALL

DOCUMENT = (ROOT / "docs" / "pipeline.md").read_text()
TABLES = tables()


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_the_document_are_the_answers(name: str) -> None:
    assert TABLES[name] in DOCUMENT, "to print them: python -m tests.pipeline.example"


@pytest.mark.parametrize("name", ALL)
def test_the_images_of_the_document_are_up_to_date(name: str) -> None:
    drawn = (ROOT / "docs" / "images" / f"pipeline-{name}.svg").read_text()
    assert drawn == ALL[name](), "to draw them: python -m tests.pipeline.pictures docs/images"
    assert f"(images/pipeline-{name}.svg)" in DOCUMENT


def test_the_document_has_a_section_for_each_of_the_thirteen_questions() -> None:
    numbered = re.findall(r"^### (\d+)\. ([a-z-]+):", DOCUMENT, re.MULTILINE)
    assert [int(number) for number, _ in numbered] == list(range(1, 14))


def test_the_images_of_the_documents_are_small() -> None:
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size <= 300_000, picture.name
