"""Draws the pictures of docs/concepts.md from the texts in docs/pictures: `make reference`.

A text has one item on a line. Columns and rows count from 0, and ` / ` begins a new line of a label:

    title  What the picture shows, for those who cannot see it
    box    NAME COLUMN ROW LABEL
    state  NAME COLUMN ROW LABEL     a box with round corners
    note   COLUMN ROW LABEL          text without a box
    arrow  FROM TO LABEL             the label may be missing
"""

import math
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from documentation.site import ROOT

TEXTS = ROOT / "docs" / "pictures"
IMAGES = ROOT / "docs" / "images"

COLUMN, ROW, WIDTH, HEIGHT, MARGIN = 320, 130, 190, 62, 20
LINE, FONT = 17, 13
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1b2b34}.box{fill:#e8f3f1;stroke:#00796b;stroke-width:1.5}"
    ".state{fill:#fff6e0;stroke:#b07d00;stroke-width:1.5}.arrow{stroke:#455a64;stroke-width:1.5;fill:none}"
    ".label{font-size:12px;fill:#37474f}.behind{fill:#fff}"
)
Point = tuple[float, float]


class PictureError(Exception):
    """A line of a text that cannot be drawn."""


@dataclass
class Picture:
    title: str = ""
    boxes: dict[str, tuple[str, int, int, list[str]]] = field(default_factory=dict)
    """Name -> class, column, row, lines."""
    arrows: list[tuple[str, str, list[str]]] = field(default_factory=list)
    notes: list[tuple[int, int, list[str]]] = field(default_factory=list)


def read_picture(text: str) -> Picture:
    picture = Picture()
    for number, line in enumerate(text.splitlines(), start=1):
        kind, *words = line.split() or [""]
        try:
            if kind == "title":
                picture.title = " ".join(words)
            elif kind in ("box", "state"):
                picture.boxes[words[0]] = (kind, int(words[1]), int(words[2]), _lines(words[3:]))
            elif kind == "note":
                picture.notes.append((int(words[0]), int(words[1]), _lines(words[2:])))
            elif kind == "arrow":
                picture.arrows.append((words[0], words[1], _lines(words[2:])))
            elif kind and not kind.startswith("#"):
                raise PictureError(f"Line {number}: {kind!r} is not an item.")
        except (IndexError, ValueError) as error:
            raise PictureError(f"Line {number} cannot be read: {line}") from error
    unknown = {name for start, end, _ in picture.arrows for name in (start, end)} - picture.boxes.keys()
    if unknown or not picture.title:
        raise PictureError(f"Without a box: {sorted(unknown)}." if unknown else "The title is missing.")
    return picture


def _lines(words: list[str]) -> list[str]:
    return [part.strip() for part in " ".join(words).split(" / ") if part.strip()]


def draw(picture: Picture) -> str:
    places = [(column, row) for _, column, row, _ in picture.boxes.values()]
    places += [(column, row) for column, row, _ in picture.notes]
    width = 2 * MARGIN + max(column for column, _ in places) * COLUMN + WIDTH
    height = 2 * MARGIN + max(row for _, row in places) * ROW + HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>{escape(picture.title)}</title><style>{_STYLE}</style>",
        '<defs><marker id="end" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L9,4 L0,8 z" fill="#455a64"/></marker></defs>',
        f'<rect class="behind" width="{width}" height="{height}"/>',
    ]
    parts += [_arrow(picture, *arrow) for arrow in picture.arrows]
    for kind, column, row, lines in picture.boxes.values():
        x, y = _corner(column, row)
        corner = 26 if kind == "state" else 4
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="{corner}"/>')
        parts.append(_text(lines, (x + WIDTH / 2, y + HEIGHT / 2)))
    for column, row, lines in picture.notes:
        x, y = _corner(column, row)
        parts.append(_text(lines, (x + WIDTH / 2, y + HEIGHT / 2), "label"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _corner(column: int, row: int) -> tuple[int, int]:
    return MARGIN + column * COLUMN, MARGIN + row * ROW


def _arrow(picture: Picture, start: str, end: str, lines: list[str]) -> str:
    first, last = _center(picture, start), _center(picture, end)
    (x1, y1), (x2, y2) = _edge(first, last), _edge(last, first)
    line = f'<path class="arrow" d="M{x1:g},{y1:g} L{x2:g},{y2:g}" marker-end="url(#end)"/>'
    if not lines:
        return line
    middle = ((x1 + x2) / 2, (y1 + y2) / 2)
    wide = max(map(len, lines)) * FONT * 0.5 + 6
    tall = len(lines) * (LINE - 2) + 2
    left, top = middle[0] - wide / 2, middle[1] - tall / 2
    behind = f'<rect class="behind" x="{left:g}" y="{top:g}" width="{wide:g}" height="{tall:g}"/>'
    return f"{line}{behind}{_text(lines, middle, 'label')}"


def _center(picture: Picture, name: str) -> Point:
    _, column, row, _ = picture.boxes[name]
    x, y = _corner(column, row)
    return x + WIDTH / 2, y + HEIGHT / 2


def _edge(center: Point, other: Point) -> Point:
    """Where the line from the center of a box to another point leaves the box."""
    dx, dy = other[0] - center[0], other[1] - center[1]
    shares = [size / 2 / abs(part) if part else math.inf for size, part in ((WIDTH, dx), (HEIGHT, dy))]
    share = min(*shares, 1.0)
    return round(center[0] + share * dx, 1), round(center[1] + share * dy, 1)


def _text(lines: list[str], middle: Point, kind: str = "") -> str:
    step = LINE - 2 if kind else LINE
    first = middle[1] - (len(lines) - 1) * step / 2 + FONT * 0.35
    rows = "".join(
        f'<tspan x="{middle[0]:g}" y="{first + number * step:g}">{escape(line)}</tspan>'
        for number, line in enumerate(lines)
    )
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} text-anchor="middle">{rows}</text>'


def pictures() -> dict[Path, str]:
    """Image -> what it has to contain."""
    return {IMAGES / f"{path.stem}.svg": draw(read_picture(path.read_text())) for path in sorted(TEXTS.glob("*.txt"))}
