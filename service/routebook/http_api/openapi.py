"""The description of the API: the texts and schemas of `/openapi.json`, and Swagger UI at `/docs`.

Swagger UI is served from our own files. No page loads anything from another host; a content security policy makes the
browser enforce that.
"""

from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from starlette.staticfiles import StaticFiles

from routebook.http_api import problems
from routebook.http_api.problems import MEDIA_TYPE, Kind

SCHEMA_NAME: Final = "Problem"

SCHEMA: Final[dict[str, Any]] = {
    "title": SCHEMA_NAME,
    "description": "What went wrong (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "A short stable word that programs compare."},
        "title": {"type": "string", "description": "The same as text for people."},
        "status": {"type": "integer", "description": "The HTTP status."},
        "detail": {"type": "string", "description": "What happened, with values."},
        "advice": {"type": "string", "description": "What to do."},
        "setting": {"type": "string", "description": "With limit-reached: the setting of the limit."},
        "limit": {"type": "integer", "description": "With limit-reached: its value."},
        "errors": {
            "type": "array",
            "description": "With invalid-input: each fault and its place.",
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
BODY: Final = (problems.BROKEN_JSON, problems.TOO_SLOW, problems.TOO_LARGE, problems.INVALID, problems.LIMIT)
READ: Final = (problems.INVALID, problems.NOT_SEEN_YET)
STORE: Final = (problems.STORE_UNAVAILABLE,)
ADMIN: Final = (
    problems.MISSING_TOKEN,
    problems.WRONG_TOKEN,
    problems.FORBIDDEN,
    problems.FOREIGN_ORIGIN,
    problems.TOO_MANY_SIGN_INS,
)
WRITE: Final = (*ADMIN, problems.STORE_UNAVAILABLE)


def problem_responses(*kinds: Kind) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a path operation. Kinds with the same status share an entry."""
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
The name service for RocketMQ fleets: which brokers have a topic, and which brokers are alive.

* **Reads** are answered from this worker's memory. Their headers state how current they are:
  `X-Routebook-Version` rises with every change within one history, `X-Routebook-History` names the history,
  `X-Routebook-Stale-Seconds` is present while the worker has no contact with the store, and `X-Routebook-Warnings`
  while an answer may be old or wrong.
  `?min_version=N` waits for a limited time until this worker has seen version N.
* **Writes** are visible at once on the worker that answered them, and within a second on all others.
* **Errors** are `application/problem+json`: compare `type`, read `detail`, follow `advice`. 404 means that
  the table is complete and does not contain the object; when the worker cannot be sure, the answer is 503.
* **Tokens**: administrative requests (marked with a lock) need a bearer token with the role `operator` or `admin`,
  unless the service listens on loopback only. What brokers send (marked as well) needs one with the role `broker` as
  soon as such an identity exists.
* **Host**: the header must be an address or a name of the service; otherwise the answer is 421.
"""

TAGS: Final = [
    {"name": "lookup", "description": "Find the route of a topic, and watch routes change."},
    {"name": "brokers", "description": "Register brokers, send heartbeats, deregister them."},
    {"name": "topics", "description": "The topics, and the brokers that have them."},
    {"name": "clusters", "description": "The broker groups listed under each cluster."},
    {
        "name": "key-values",
        "description": "Namespace configuration, such as that of ordered topics. Administrative.",
    },
    {"name": "operation", "description": "Status of the service, its history, settings, snapshots and reports."},
    {"name": "peers", "description": "The name-server list that RocketMQ peers poll."},
]


_FRESHNESS_HEADERS: Final[dict[str, Any]] = {
    "X-Routebook-Version": {
        "description": "Rises with every change within one history.",
        "schema": {"type": "integer"},
    },
    "X-Routebook-History": {
        "description": "Names the history. A store that lost data starts a new one.",
        "schema": {"type": "string"},
    },
    "X-Routebook-Stale-Seconds": {
        "description": "Seconds since the last contact with the store; absent while there is contact.",
        "schema": {"type": "integer"},
    },
    "X-Routebook-Warnings": {
        "description": "Why the answer may be old or wrong: `incomplete`, `stale`, `recovering`, `removals-held`; "
        "absent when there is no reason.",
        "schema": {"type": "string"},
    },
}


def install_openapi(app: FastAPI) -> None:
    """Adds the schema of problems, which are not response models of FastAPI, and the freshness headers of reads."""

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
            _describe_unmatched_paths(document)
            _describe_freshness_headers(document)
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas[SCHEMA_NAME] = SCHEMA
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to extend it


def _describe_unmatched_paths(document: dict[str, Any]) -> None:
    """A value in a path that contains a slash makes it another path, so any operation with values may answer 404."""
    for path, item in document["paths"].items():
        for operation in item.values() if "{" in path else ():
            responses = operation["responses"]
            responses.setdefault("404", problem_responses(problems.NO_SUCH_PATH)[404])


def _describe_freshness_headers(document: dict[str, Any]) -> None:
    for item in document["paths"].values():
        for response in item.get("get", {}).get("responses", {}).values():
            response["headers"] = _FRESHNESS_HEADERS


_ASSETS: Final = Path(__file__).with_name("assets")

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Routebook HTTP API</title>
<link rel="icon" type="image/png" href="docs/assets/swagger-ui/favicon-32x32.png">
<link rel="stylesheet" href="docs/assets/swagger-ui/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/assets/swagger-ui/swagger-ui-bundle.js"></script>
<script src="docs/assets/start.js"></script>
</body>
</html>
"""

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def show_docs() -> Response:
    return Response(_PAGE, media_type="text/html", headers=_HEADERS)


def add_pages(app: FastAPI) -> None:
    app.include_router(router)
    app.mount("/docs/assets", StaticFiles(directory=_ASSETS))
