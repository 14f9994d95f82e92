"""Questions about the past, answered by a stand-in for the pipeline's session. tests/pipeline/cli/test_warm.py asks the
real one in the same way.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from routebook.http_api import dependencies
from routebook.http_api.questions import QUESTIONS
from routebook.store.namespace import Namespace
from tests.http_api.conftest import Worker, running
from tests.support.waiting import until

ANSWER = {"question": "availability", "rows": [{"cluster": "c"}]}
GUIDE = Path(__file__).parents[2] / "docs" / "http-api.md"

Message = dict[str, Any]


class Session:
    """Listens at a socket, keeps the requests, and answers each with the same messages."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s"
        self.requests: list[Message] = []
        self.messages: list[Message] = [{"started": True}, {"out": json.dumps(ANSWER)}, {"code": 0}]
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(json.loads(await reader.readline()))
        await self.may_answer.wait()
        for message in self.messages:
            writer.write(json.dumps(message).encode() + b"\n")
        writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        async with await asyncio.start_unix_server(self.serve, self.path):
            yield
            self.may_answer.set()


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    one = Session(tmp_path)
    async with one.listening():
        yield one


@pytest.fixture
async def worker_with_session(namespace: Namespace, session: Session) -> AsyncIterator[Worker]:
    async with running(namespace, pipeline_socket=str(session.path)) as one:
        yield one


async def test_a_question_becomes_a_command_and_its_output_the_answer(
    worker_with_session: Worker, session: Session
) -> None:
    window = {"from": "2026-11-01T00:00Z", "to": "2026-11-02T00:00Z"}
    chosen = {"by": "seat", "cluster": "--fail", "limit": "7", "worst_first": "true"}
    answer = await worker_with_session.http.get("/v1/questions/availability", params={**window, **chosen})
    assert (answer.status_code, answer.json()) == (200, ANSWER)
    (request,) = session.requests
    assert request["shared"] is True
    assert [word for word in request["arguments"] if not word.startswith("--namespace=")] == [
        *("run", "availability", "--json", "--allow-partial"),
        *("--from=2026-11-01T00:00Z", "--to=2026-11-02T00:00Z", "--by=seat", "--cluster=--fail", "--top=7"),
        "--worst-first",
    ]


async def test_only_questions_reach_the_session(worker_with_session: Worker, session: Session) -> None:
    for path in ("compact", "vacuum", "rebase", "no-such"):
        answer = await worker_with_session.http.get(f"/v1/questions/{path}")
        assert (answer.status_code, answer.json()["type"]) == (422, "invalid-input")
    for parameters in ({"limit": "0"}, {"limit": "1001"}, {"out": "/etc/passwd"}, {"from": "x" * 41}):
        answer = await worker_with_session.http.get("/v1/questions/events", params=parameters)
        assert (answer.status_code, answer.json()["type"]) == (422, "invalid-input")
    assert session.requests == []


@pytest.mark.parametrize(
    ("messages", "status", "kind", "text"),
    [
        ([{"out": "{}"}, {"code": 1}], 200, None, ""),
        ([{"err": "a note\nError: Nothing is known about then.\n"}, {"code": 1}], 404, "past-unknown", "Nothing is"),
        ([{"err": "Error: There is no level.\n"}, {"code": 2}], 422, "invalid-input", "There is no level."),
        ([{"err": "Error: /secret/lake is gone.\n"}, {"code": 3}], 503, "pipeline-unavailable", "cannot read its lake"),
        ([{"refused": "it has version 2"}], 503, "pipeline-unavailable", "it has version 2"),
        ([{"started": True}], 503, "pipeline-unavailable", "The session ended."),
    ],
)
async def test_the_end_of_the_command_decides_the_status(
    worker_with_session: Worker, session: Session, messages: list[Message], status: int, kind: str | None, text: str
) -> None:
    session.messages = messages
    answer = await worker_with_session.http.get("/v1/questions/integrity")
    assert answer.status_code == status
    assert answer.json().get("type") == kind
    assert text in answer.json().get("detail", "")
    assert "/secret" not in answer.text


async def test_without_a_session_the_problem_says_what_to_set(worker: Worker) -> None:
    answer = await worker.http.get("/v1/questions/events")
    assert (answer.status_code, answer.json()["type"]) == (404, "no-pipeline-session")
    assert "pipeline_socket" in answer.json()["advice"]


async def test_a_session_that_ended_is_unavailable(namespace: Namespace, tmp_path: Path) -> None:
    async with running(namespace, pipeline_socket=str(tmp_path / "gone")) as one:
        answer = await one.http.get("/v1/questions/events")
    assert (answer.status_code, answer.json()["type"]) == (503, "pipeline-unavailable")
    assert answer.headers["Retry-After"]


async def test_a_slow_answer_is_asked_for_again(namespace: Namespace, session: Session) -> None:
    session.may_answer.clear()
    timeouts = {"request_timeout_ms": "700", "min_version_wait_ms": "100"}
    async with running(namespace, pipeline_socket=str(session.path), **timeouts) as one:
        answer = await one.http.get("/v1/questions/anomalies")
        assert (answer.status_code, answer.json()["type"]) == (504, "question-too-slow")
        session.may_answer.set()
        assert (await one.http.get("/v1/questions/anomalies")).json() == ANSWER


async def test_only_a_few_requests_wait_at_a_time(worker_with_session: Worker, session: Session) -> None:
    session.may_answer.clear()
    waiting = [
        asyncio.create_task(worker_with_session.http.get("/v1/questions/churn"))
        for _ in range(dependencies.MAX_QUESTIONS)
    ]
    await until(lambda: len(session.requests) == dependencies.MAX_QUESTIONS)
    refused = await worker_with_session.http.get("/v1/questions/churn")
    assert (refused.status_code, refused.json()["type"]) == (429, "too-many-requests")
    session.may_answer.set()
    assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200] * len(waiting)


def test_the_page_lists_every_question() -> None:
    section = GUIDE.read_text().split("\n## Questions about the past\n")[1].split("\n## ")[0]
    assert set(re.findall(r"`([a-z-]+)`", section)) >= set(QUESTIONS)
