"""A strict HTML parser for tests: it fails if elements are not closed in the right order."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "link", "br", "hr", "img", "input"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def all(self, name: str) -> list["Element"]:
        own = [self] if self.name == name else []
        return own + [found for child in self.children for found in child.all(name)]

    @property
    def words(self) -> str:
        return " ".join([self.text, *(child.words for child in self.children)])


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"duplicate attribute: {attrs}"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.open[-1].text += data


def read(page: str) -> Element:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.root], f"not closed: {[element.name for element in reader.open[1:]]}"
    return reader.root


def charts(page: str) -> list[ElementTree.Element]:
    """All charts of the page, parsed as XML."""
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
