"""Pictures are drawn from texts. test_reference.py compares the images with them."""

import re
import xml.etree.ElementTree as ET

import pytest

from documentation.pictures import IMAGES, TEXTS, PictureError, draw, pictures, read_picture
from tests.architecture.sources import ROOT

TEXT = "title A & B\nbox a 0 0 One / two <three>\nstate b 1 1 Really?\narrow a b yes\nnote 1 0 Text\n"


def test_a_picture_has_its_boxes_arrows_and_a_title_for_those_who_cannot_see_it() -> None:
    root = ET.fromstring(draw(read_picture(TEXT)))
    texts = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")]
    assert texts == ["yes", "Onetwo <three>", "Really?", "Text"]
    assert next(element for element in root.iter() if element.tag.endswith("}title")).text == "A & B"
    assert len([element for element in root.iter() if element.get("class") == "arrow"]) == 1


@pytest.mark.parametrize(
    "text", ["title x\nbos a 0 0 X", "title x\nbox a 0 X", "title x\nbox a 0 0 X\narrow a b", "box a 0 0 X"]
)
def test_a_line_that_cannot_be_drawn_is_refused(text: str) -> None:
    with pytest.raises(PictureError):
        draw(read_picture(text))


def test_no_label_is_wider_than_its_box() -> None:
    wide = [
        (path.name, line)
        for path in TEXTS.glob("*.txt")
        for _, _, _, lines in read_picture(path.read_text()).boxes.values()
        for line in lines
        if len(line) > 27 or len(lines) > 3
    ]
    assert wide == []


def test_every_picture_is_shown_by_the_concepts() -> None:
    shown = set(re.findall(r"\]\(images/(concept-[\w-]+\.svg)\)", (ROOT / "docs" / "concepts.md").read_text()))
    assert shown == {path.name for path in pictures()} == {path.name for path in IMAGES.glob("concept-*.svg")}
