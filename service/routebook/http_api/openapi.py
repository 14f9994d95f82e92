"""How problems look in `/openapi.json`: one schema, and one short entry for each status a path can answer
with.

The texts of `/openapi.json`, and the schema of problems put into it.
"""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

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


TITLE: Final = "Routebook"

DESCRIPTION: Final = """
The name service for RocketMQ fleets: which brokers hold a topic, and who lives.

* **Reads** are answered from this worker's memory. Each says how new it is: `X-Routebook-Version` rises
  with every change within one history, `X-Routebook-History` names the history, and
  `X-Routebook-Stale-Seconds` appears while the store is out of touch. `?min_version=N` waits, bounded,
  until this worker has seen version N.
* **Writes** are visible on the worker that answered them at once, and on every other one within a second.
* **Errors** are `application/problem+json`: compare `type`, read `detail`, do what `advice` says. 404 means
  that the table is complete and does not hold it; in doubt the answer is 503.
* **Administrative** requests (marked with a lock) are free from loopback; from elsewhere they want the token.
"""

TAGS: Final = [
    {"name": "lookup", "description": "Where does a topic live, and what changes?"},
    {"name": "brokers", "description": "Announce a broker, keep it alive, take it away."},
    {"name": "topics", "description": "Which topics there are and on which brokers."},
    {"name": "clusters", "description": "Which brokers belong together."},
    {
        "name": "key-values",
        "description": "Name-space configuration, ordered topics among it. Administrative.",
    },
    {"name": "operation", "description": "State of the service, its history and settings."},
    {"name": "peers", "description": "What RocketMQ peers poll for their name-server list."},
]


_MARKS: Final[dict[str, Any]] = {
    "X-Routebook-Version": {
        "description": "Rises with every change within one history.",
        "schema": {"type": "integer"},
    },
    "X-Routebook-History": {
        "description": "A store that lost data starts a new one.",
        "schema": {"type": "string"},
    },
    "X-Routebook-Stale-Seconds": {
        "description": "Only while the store is out of touch: since when.",
        "schema": {"type": "integer"},
    },
}


def describe_with_problems(app: FastAPI) -> None:
    """Problems are not made by FastAPI's response models, so their schema is added by hand, once."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
                tags=app.openapi_tags,
                license_info=app.license_info,
                separate_input_output_schemas=app.separate_input_output_schemas,
            )
            _describe_marks(document)
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas[SCHEMA_NAME] = SCHEMA
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to extend it


def _describe_marks(document: dict[str, Any]) -> None:
    for item in document["paths"].values():
        for answer in item.get("get", {}).get("responses", {}).values():
            answer["headers"] = _MARKS
