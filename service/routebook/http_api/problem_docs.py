"""How problems look in `/openapi.json`: one schema, and one short entry for each status a path can answer
with.
"""

from typing import Any, Final

from routebook.http_api import problems
from routebook.http_api.problems import MEDIA_TYPE, Kind

SCHEMA_NAME: Final = "Problem"

SCHEMA: Final[dict[str, Any]] = {
    "title": SCHEMA_NAME,
    "description": "What went wrong (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "A short stable word for programs to compare."},
        "title": {"type": "string", "description": "The same for people."},
        "status": {"type": "integer", "description": "The HTTP status again."},
        "detail": {"type": "string", "description": "What happened, with values."},
        "advice": {"type": "string", "description": "What to do."},
        "errors": {
            "type": "array",
            "description": "With invalid-input: each fault and where it is.",
            "items": {
                "type": "object",
                "properties": {"where": {"type": "string"}, "fault": {"type": "string"}},
            },
        },
    },
}


def not_found(what: str) -> Kind:
    return Kind(f"{what}-not-found", 404, f"No such {what}")


INPUT: Final = (problems.INVALID,)
BODY: Final = (problems.BROKEN_JSON, problems.TOO_SLOW, problems.TOO_LARGE, problems.INVALID)
READ: Final = (problems.INVALID, problems.NOT_SEEN_YET)
STORE: Final = (problems.STORE_UNAVAILABLE,)
ADMIN: Final = (problems.FORBIDDEN, problems.FOREIGN_ORIGIN)
WRITE: Final = (problems.FOREIGN_ORIGIN, problems.STORE_UNAVAILABLE)


def answers_with(*kinds: Kind) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a path operation; kinds that share a status share an entry."""
    by_status: dict[int, list[Kind]] = {}
    for kind in kinds:
        listed = by_status.setdefault(kind.status, [])
        if kind not in listed:
            listed.append(kind)
    return {status: _entry(listed) for status, listed in sorted(by_status.items())}


def _entry(kinds: list[Kind]) -> dict[str, Any]:
    examples = {
        kind.type: {"value": {"type": kind.type, "title": kind.title, "status": kind.status, "detail": "…"}}
        for kind in kinds
    }
    return {
        "description": "; ".join(f"`{kind.type}`: {kind.title.lower()}" for kind in kinds),
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{SCHEMA_NAME}"}, "examples": examples}},
    }
