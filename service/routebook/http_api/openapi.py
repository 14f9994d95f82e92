"""The texts of `/openapi.json`, and the schema of problems put into it."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from routebook.http_api import problem_docs

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
            schemas[problem_docs.SCHEMA_NAME] = problem_docs.SCHEMA
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to extend it


def _describe_marks(document: dict[str, Any]) -> None:
    for item in document["paths"].values():
        for answer in item.get("get", {}).get("responses", {}).values():
            answer["headers"] = _MARKS
