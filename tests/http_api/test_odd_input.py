"""No input causes an internal error."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from routebook.http_api.app import build_operations
from routebook.store.namespace import Namespace
from tests.http_api.conftest import Worker, running
from tests.http_api.ports import raw_connection
from tests.support.waiting import until

PATHS = build_operations(None).openapi()["paths"]
REQUESTS = [(method.upper(), path) for path, item in PATHS.items() for method in item if path != "/v1/watch"]

bounded = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

odd_text = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", ".", "..", "%", "%00", "a/b", "\x00", "\ud7ff", "x" * 300, "null", "-1", "1e9", "9" * 30, "{}"]
    ),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    odd_text,
    st.sampled_from(["127.0.0.11:10911", "[::1]:1", 2**31, 2**63, -(2**63) - 1]),
)
words = st.sampled_from(
    [
        "address",
        "topics",
        "timeout_ms",
        "data_version",
        "filters",
        "mappings",
        "zone",
        "ha_address",
        "queues",
        "value",
        "writable",
        "acting_master",
        "bname",
        "current_ids",
        "perm",
        "read_queues",
        "counter",
    ]
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | odd_text, inner, max_size=4),
    max_leaves=12,
)
bodies = st.one_of(
    st.dictionaries(words, values, max_size=5).map(lambda body: json.dumps(body).encode()),
    values.map(lambda body: json.dumps(body).encode()),
    st.binary(max_size=60),
)
queries = st.dictionaries(
    st.sampled_from(["limit", "cursor", "cluster", "since", "min_version", "replace", "topic"]) | odd_text,
    odd_text,
    max_size=3,
)


@pytest.fixture
async def fast_worker(namespace: Namespace) -> AsyncIterator[Worker]:
    # A worker counts as out of touch only after 9 s, so that a busy machine causes no 503.
    async with running(namespace, min_version_wait_ms="10", request_timeout_ms="200", store_timeout_ms="9000") as one:
        yield one


def filled(path: str, names: list[str]) -> str:
    for name in names:
        start, brace, rest = path.partition("{")
        if brace:
            path = start + quote(name, safe="") + rest.partition("}")[2]
    return path


@bounded
@given(
    request=st.sampled_from(REQUESTS),
    names=st.lists(odd_text, min_size=3, max_size=3),
    query=queries,
    body=bodies,
)
async def test_no_request_causes_an_internal_error(
    fast_worker: Worker, request: tuple[str, str], names: list[str], query: dict[str, str], body: bytes
) -> None:
    method, path = request

    async def answer_of_current_table() -> httpx.Response:
        """While the machine is busy with other work, this process may not have read the history for seconds, and says
        so (503). Then it is asked once more.
        """
        await until(lambda: fast_worker.registry.replica.current)
        return await fast_worker.http.request(method, filled(path, names), params=query, content=body)

    answer = await answer_of_current_table()
    check(answer if answer.status_code != 503 else await answer_of_current_table())


def check(answer: httpx.Response) -> None:
    if answer.request.url.path == "/":
        # The names `..` lead out of /v1, to the address that redirects to the console.
        assert answer.status_code in {303, 405}
        return
    assert answer.status_code in {200, 400, 404, 405, 409, 422, 504}, answer.text
    if answer.status_code != 200:
        problem: dict[str, Any] = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["status"] == answer.status_code
        assert problem["type"]
        assert problem["detail"]


@bounded
@given(
    target=st.binary(max_size=30).map(lambda raw: bytes(byte for byte in raw if byte not in b" \r\n\t\x00")),
    header=st.binary(max_size=30).map(lambda raw: bytes(byte for byte in raw if byte not in b"\r\n\x00")),
    name=st.sampled_from(
        [b"host", b"origin", b"authorization", b"last-event-id", b"content-length", b"x-forwarded-for"]
    ),
)
async def test_no_request_head_causes_an_internal_error(
    fast_worker: Worker, target: bytes, header: bytes, name: bytes
) -> None:
    async with raw_connection(fast_worker.port) as connection:
        await connection.send(
            b"DELETE /v1/topics/" + target + b" HTTP/1.1\r\nconnection: close\r\n" + name + b": " + header + b"\r\n\r\n"
        )
        status = int((await connection.read_all()).split(b" ", 2)[1])
    assert status in {200, 400, 401, 403, 404, 408, 413, 421, 422, 429}
