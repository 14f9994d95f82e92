"""Renders the console's pages from the templates beside this module. Every value is escaped: names come from peers."""

import hashlib
import json
from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from routebook.model.broker import PERM_INHERIT, PERM_READ, PERM_WRITE
from routebook.model.change_text import describe_change

STEP_S: Final = 0.000_1
_FOLDER: Final = Path(__file__).parent
ASSETS: Final = _FOLDER / "assets"
ASSET_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer`, browsers would send `Origin: null` with forms, which the check of the origin refuses.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@cache
def asset(name: str) -> tuple[bytes, str]:
    """The bytes of an asset and the hash in its address, so that browsers may cache it without limit."""
    body = (ASSETS / name).read_bytes()
    return body, hashlib.sha256(body).hexdigest()[:12]


def asset_url(name: str) -> str:
    return f"/console/assets/{asset(name)[1]}/{name}"


def format_time(ms: int | None) -> Markup:
    """The script shows it in the viewer's zone, with UTC on hover."""
    if ms is None:
        return Markup("-")
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return Markup("{}").format(ms)
    iso = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"
    return Markup('<time datetime="{}">{}</time>').format(iso, at.strftime("%Y-%m-%d %H:%M:%S UTC"))


def format_duration(ms: float | None) -> str:
    if ms is None:
        return "-"
    seconds = ms / 1000
    if seconds < 1:
        return f"{ms:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def format_number(number: float | None) -> str:
    return "-" if number is None else f"{number:,}"


def format_bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


_PERM_WORDS: Final = ((PERM_READ, "read"), (PERM_WRITE, "write"), (PERM_INHERIT, "inherit"))


def format_perm(perm: int) -> str:
    words = [word for bit, word in _PERM_WORDS if perm & bit]
    return f"{' + '.join(words) or 'none'} ({perm})"


def address(path: str, **query: object) -> str:
    """A link within the console. Names are in the query, since a path cannot contain every name."""
    given = {key.rstrip("_"): value for key, value in query.items() if value not in (None, "")}
    return f"/console/{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")


def format_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


def polyline(points: list[float], width: int = 120, height: int = 28) -> str:
    """The points of a line in an SVG picture of that size."""
    if not points:
        return ""
    top = max(*points, 1.0)
    step = width / max(len(points) - 1, 1)
    return " ".join(f"{i * step:.1f},{height - 1 - value / top * (height - 2):.1f}" for i, value in enumerate(points))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "time": format_time,
        "duration": format_duration,
        "number": format_number,
        "bytes": format_bytes,
        "perm": format_perm,
        "pretty": format_json,
        "from_json": json.loads,
        "polyline": polyline,
        "change_text": describe_change,
    }
    environment.globals |= {"address": address, "asset_url": asset_url}
    return environment


def compile_templates() -> None:
    """About 100 ms of work, which the first page of each kind would otherwise do in the event loop."""
    environment = _environment()
    for name in environment.list_templates():
        environment.get_template(name)


def render(template: str, values: Mapping[str, Any]) -> str:
    return _environment().get_template(template).render(values)


def render_in_steps(template: str, values: Mapping[str, Any]) -> Generator[None, None, str]:
    """For `LongWork`: a page takes some milliseconds, and lookups are answered between two steps. The values must not
    contain live mappings of the table, which may change in between.
    """
    parts: list[str] = []
    began = perf_counter()
    for part in _environment().get_template(template).generate(values):
        parts.append(part)
        if perf_counter() - began > STEP_S:
            yield
            began = perf_counter()
    return "".join(parts)
