"""`GET /v1/questions/{question}`: what the fleet did, answered by the pipeline's warm session.

The session is a process of its own (`routebook pipeline serve`) with Spark in it. It listens on the socket in the
setting `pipeline_socket`. This module sends it one line of JSON and reads lines of JSON, as described in the pipeline's
`cli/warm.py`: it imports nothing of the pipeline, which may not be installed here.

The session answers one question at a time, and keeps answers while its lake does not change.
"""

import asyncio
import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Final, Literal, get_args

from fastapi import APIRouter, Depends, Query, Response
from fastapi import Path as InPath
from pydantic import Field

from routebook.http_api import problems
from routebook.http_api.dependencies import DEFAULT_LIMIT, MAX_LIMIT, MAX_QUESTIONS, ContextDep, LiveSettingsDep
from routebook.http_api.openapi import INPUT, problem_responses
from routebook.http_api.problems import Problem
from routebook.http_api.schemas import ResponseBody

QuestionName = Literal[
    "route",
    "route-diff",
    "availability",
    "failures",
    "flaps",
    "heartbeat-gaps",
    "churn",
    "capacity",
    "exposure",
    "failovers",
    "anomalies",
    "integrity",
    "events",
]
QUESTIONS: Final[tuple[str, ...]] = get_args(QuestionName)

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
MARGIN_MS: Final = 500
"""The worker's deadline for a request (`request_timeout_ms`) leaves this much for the response."""

_NEGATIVE, _WRONG_USAGE, _UNREACHABLE = 1, 2, 3
"""Exit codes of the pipeline's commands."""


class Window(ResponseBody):
    from_: str = Field(alias="from", examples=["2026-11-01T00:00:00.000Z"])
    to: str = Field(description="Exclusive.", examples=["2026-11-02T00:00:00.000Z"])


class Answer(ResponseBody):
    """The JSON form of `routebook pipeline run`."""

    question: str = Field(examples=["availability"])
    by: str = Field(description="What a row describes.", examples=["cluster"])
    selected: dict[str, Any] = Field(default={}, description="The filters; absent without any.")
    window: Window
    since: str = Field(description="The history that was used begins here.", examples=["2026-11-01T00:00:00.000Z"])
    complete_until: str = Field(description="No earlier change is missing.", examples=["2026-11-02T00:00:12.345Z"])
    partial: bool = Field(description="The lake does not reach the end of the window; the answer is cut there.")
    ok: bool = Field(description="No change in the window is missing or unreadable.")
    integrity: list[dict[str, Any]] = Field(description="The answer to `integrity` for the same window.")
    rows: list[dict[str, Any]] = Field(description="Columns that end in `_ms` are milliseconds.")


def _words_of_command(
    *,
    question: Annotated[
        QuestionName, InPath(description="One of the pipeline's questions.", examples=["availability"])
    ],
    live_settings: LiveSettingsDep,
    from_: Annotated[
        str | None,
        Query(alias="from", max_length=40, description="ISO 8601 with its zone, or `-2h`. Default: a day before `to`."),
    ] = None,
    to: Annotated[
        str | None, Query(max_length=40, description="The same. Default: until where the history is complete.")
    ] = None,
    by: Annotated[str | None, Query(max_length=20, description="What a row describes, such as `seat`.")] = None,
    cluster: Annotated[str | None, Query(max_length=255, description="Only rows about this cluster.")] = None,
    broker: Annotated[str | None, Query(max_length=255, description="Only rows about this broker name.")] = None,
    topic: Annotated[str | None, Query(max_length=255, description="Only rows about this topic.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of rows.")] = DEFAULT_LIMIT,
    worst_first: Annotated[bool, Query(description="Sort by what is worst instead of by name.")] = False,
) -> list[str]:
    """The question as the words of the pipeline's command."""
    options = {"from": from_, "to": to, "by": by, "cluster": cluster, "broker": broker, "topic": topic, "top": limit}
    namespace = live_settings.current.namespace
    words = ["run", question, "--json", "--allow-partial", f"--namespace={namespace}"]
    words += [f"--{name}={value}" for name, value in options.items() if value is not None]
    return [*words, *(["--worst-first"] if worst_first else [])]


router = APIRouter(tags=["operation"], prefix="/v1/questions")


@router.get(
    "/{question}",
    summary="Ask what the fleet did",
    response_model=Answer,
    responses=problem_responses(
        *INPUT,
        problems.NO_SESSION,
        problems.UNKNOWN_PAST,
        problems.TOO_MANY,
        problems.SESSION_UNAVAILABLE,
        problems.QUESTION_TOO_SLOW,
    ),
)
async def ask_question(words: Annotated[list[str], Depends(_words_of_command)], context: ContextDep) -> Response:
    """One of the pipeline's questions about a window of time, from the lake of the warm session in `pipeline_socket`.

    A question may take seconds. After `question-too-slow` the session goes on, so ask again.
    """
    settings = context.live_settings.current
    if not settings.pipeline_socket:
        raise Problem(
            problems.NO_SESSION,
            "This worker has no warm session of the pipeline.",
            advice="Start `routebook pipeline serve`, and set pipeline_socket (--pipeline-socket, "
            "ROUTEBOOK_PIPELINE_SOCKET) to its socket.",
        )
    if context.questions.locked():
        raise Problem(
            problems.TOO_MANY,
            f"{MAX_QUESTIONS} questions are waiting for answers.",
            advice="Send the request again when one of them is answered.",
        )
    async with context.questions:
        try:
            async with asyncio.timeout(max(settings.request_timeout_ms - MARGIN_MS, 50) / 1000):
                reply = await _ask(settings.pipeline_socket, words)
        except TimeoutError as error:
            raise Problem(
                problems.QUESTION_TOO_SLOW,
                "The pipeline's session has not answered in time.",
                advice="Send the request again: the session computes the answer to its end and keeps it. Or raise "
                "request_timeout_ms.",
            ) from error
    return _response(reply)


@dataclass(slots=True)
class _Reply:
    code: int | None = None
    out: str = ""
    err: str = ""
    refused: str = ""


async def _ask(path: str, words: list[str]) -> _Reply:
    request = {"version": _package_version(), "arguments": words, "shared": True}
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=MAX_ANSWER_BYTES)
    except OSError as error:
        raise _unavailable("No warm session of the pipeline listens.") from error
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        reply = _Reply()
        async for line in reader:
            message = json.loads(line)
            reply.out += message.get("out", "")
            reply.err += message.get("err", "")
            reply.refused = message.get("refused", "")
            reply.code = message.get("code")
        return reply
    except (OSError, ValueError) as error:
        # `asyncio` raises ValueError for a line that is longer than the limit.
        raise _unavailable("The answer is too long, or the session ended.") from error
    finally:
        writer.close()


def _response(reply: _Reply) -> Response:
    if reply.out and reply.code in (0, _NEGATIVE):
        # With 1 and an answer, the history is not ok, which the answer says too.
        return Response(reply.out, media_type="application/json", headers={"Cache-Control": "no-store"})
    reason = reply.err.rpartition("Error: ")[2].strip()
    if reply.code == _NEGATIVE:
        raise Problem(problems.UNKNOWN_PAST, reason)
    if reply.code == _WRONG_USAGE:
        raise Problem(problems.INVALID, reason, advice="See /docs for the parameters.")
    if reply.code == _UNREACHABLE:
        raise _unavailable("The session cannot read its lake.")
    raise _unavailable(f"The session refused the question: {reply.refused}." if reply.refused else "The session ended.")


def _unavailable(what: str) -> Problem:
    return Problem(
        problems.SESSION_UNAVAILABLE,
        what,
        advice="Check pipeline_socket, and the log of `routebook pipeline serve`, which must have the same version.",
    )


def _package_version() -> str:
    try:
        return version("routebook")
    except PackageNotFoundError:
        return "unknown"
