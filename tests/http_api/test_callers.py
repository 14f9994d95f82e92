"""Who may use administrative verbs."""

import logging
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.requests import Request

from routebook.http_api.callers import is_from_loopback
from routebook.store.namespace import Namespace
from tests.http_api.conftest import Worker, running, seat
from tests.http_api.ports import line_to

TOKEN = "correct-horse"
ADMINISTRATIVE = [
    ("GET", "/v1/kv/ns"),
    ("GET", "/v1/kv/ns/key"),
    ("PUT", "/v1/kv/ns/key"),
    ("DELETE", "/v1/kv/ns/key"),
    ("GET", "/v1/settings"),
    ("PUT", "/v1/settings/hold_percent"),
    ("POST", "/v1/expiry/release"),
    ("PUT", "/v1/brokers/broker-a/write-permission"),
    ("DELETE", "/v1/topics/TopicA"),
    ("DELETE", seat()),
]
FORWARDED = {"x-forwarded-for": "192.0.2.7"}
BODIES = {
    "/v1/kv/ns/key": {"value": "x"},
    "/v1/settings/hold_percent": {"value": 31},
    "/v1/brokers/broker-a/write-permission": {"writable": False},
}


@pytest.fixture
async def guarded(namespace: Namespace) -> AsyncIterator[Worker]:
    async with running(namespace, admin_token=TOKEN) as one:
        yield one


async def ask(worker: Worker, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    body = BODIES.get(path) if method == "PUT" else None
    return await worker.http.request(method, path, headers=headers, json=body)


@pytest.mark.parametrize(("method", "path"), ADMINISTRATIVE)
async def test_without_a_token_nobody_from_elsewhere_may(worker: Worker, method: str, path: str) -> None:
    await worker.put_broker()
    answer = await ask(worker, method, path, FORWARDED)
    assert (answer.status_code, answer.json()["type"]) == (403, "forbidden")
    assert "ROUTEBOOK_ADMIN_TOKEN" in answer.json()["advice"]
    assert worker.registry.replica.version == 1


@pytest.mark.parametrize(("method", "path"), ADMINISTRATIVE)
async def test_from_loopback_everybody_may(guarded: Worker, method: str, path: str) -> None:
    await guarded.put_broker()
    answer = await ask(guarded, method, path, {})
    assert answer.status_code != 403


async def test_from_elsewhere_the_token_opens(guarded: Worker) -> None:
    with_token = FORWARDED | {"authorization": f"Bearer {TOKEN}"}
    assert (await ask(guarded, "PUT", "/v1/kv/ns/key", with_token)).status_code == 200
    for wrong in (
        {},
        {"authorization": "Bearer x"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer é"},
    ):
        headers = {key.encode(): value.encode() for key, value in (FORWARDED | wrong).items()}
        answer = await guarded.http.put("/v1/kv/ns/key", headers=headers, json={"value": "y"})
        assert answer.status_code == 403, wrong
    assert guarded.registry.kv_value("ns", "key") == "x"


@pytest.mark.parametrize(
    "header",
    [{"forwarded": "for=192.0.2.7"}, FORWARDED, {"x-real-ip": "192.0.2.7"}, {"via": "1.1 proxy"}],
    ids=lambda header: next(iter(header)),
)
async def test_whoever_comes_through_a_proxy_is_from_elsewhere(worker: Worker, header: dict[str, str]) -> None:
    assert (await ask(worker, "PUT", "/v1/kv/ns/key", header)).status_code == 403


@pytest.mark.parametrize("path", ["/v1/kv/ns/key", seat(), f"{seat()}/heartbeat", "/v1/topics/T"])
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://[", "http://127.0.0.1:x"]
)
async def test_the_page_of_another_site_may_write_nothing(worker: Worker, path: str, origin: str) -> None:
    method = "POST" if path.endswith("heartbeat") else "PUT"
    bodies: dict[str, object] = {seat(): {"address": "127.0.0.1:1"}, "/v1/topics/T": {"queues": {"b": {}}}}
    body = bodies.get(path, {"value": "x"})
    answer = await worker.http.request(method, path, headers={"origin": origin}, json=body)
    assert (answer.status_code, answer.json()["type"]) == (403, "foreign-origin")
    assert worker.registry.replica.version == 0


async def test_our_own_page_may_write(worker: Worker) -> None:
    origin = f"http://127.0.0.1:{worker.port}"
    assert (await ask(worker, "PUT", "/v1/kv/ns/key", {"origin": origin})).status_code == 200


async def test_a_page_whose_name_was_made_to_point_here_may_not(worker: Worker) -> None:
    name = f"evil.example:{worker.port}"
    headers = {"host": name, "origin": f"http://{name}"}
    assert (await ask(worker, "PUT", "/v1/kv/ns/key", headers)).status_code == 403
    assert (await ask(worker, "GET", "/v1/settings", {"host": name})).status_code == 403


async def test_other_writes_are_open_to_all(worker: Worker) -> None:
    answer = await worker.http.put(seat(), headers=FORWARDED, json={"address": "127.0.0.11:10911"})
    assert answer.status_code == 200
    assert (await worker.http.post(f"{seat()}/heartbeat", headers=FORWARDED)).status_code == 200
    put = await worker.http.put("/v1/topics/T", headers=FORWARDED, json={"queues": {"broker-a": {}}})
    assert put.status_code == 200


async def test_administrative_verbs_are_written_down(guarded: Worker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "routebook.audit"):
        await ask(guarded, "PUT", "/v1/kv/ns/key", {})
        await ask(guarded, "PUT", "/v1/kv/ns/key", FORWARDED | {"authorization": f"Bearer {TOKEN}"})
        await ask(guarded, "PUT", "/v1/kv/ns/key", FORWARDED)
        await ask(guarded, "DELETE", "/v1/kv/ns/nothing", {})
    said = [record.getMessage() for record in caplog.records if record.name == "routebook.audit"]
    assert [line.rpartition(": ")[2] for line in said] == ["done", "done", "refused", "NotFoundError"]
    assert "by operator" in said[0]
    assert "by admin-token" in said[1]
    assert all("127.0.0.1:" in line and "/v1/kv/ns/" in line for line in said)
    assert not any(TOKEN in line for line in said)


async def test_the_history_names_the_operator(worker: Worker) -> None:
    await ask(worker, "PUT", "/v1/kv/ns/key", {})
    entry = (await worker.http.get("/v1/changes")).json()["changes"][0]
    assert entry["actor"] == "operator"
    assert entry["source"].startswith("127.0.0.1:")
    assert "x" not in entry.get("value", "")


@pytest.mark.parametrize(
    ("client", "host", "expected"),
    [
        (("127.0.0.1", 1), "127.0.0.1:8080", True),
        (("127.9.9.9", 1), "localhost:8080", True),
        (("::1", 1), "[::1]:8080", True),
        (("::ffff:127.0.0.1", 1), "[::1]", True),
        (("127.0.0.1", 1), "myhost:8080", True),
        (("127.0.0.1", 1), "names.localhost", True),
        (("127.0.0.1", 1), "", True),
        (("127.0.0.1", 1), "evil.example", False),
        (("127.0.0.1", 1), "evil.example.:8080", False),
        (("10.0.0.7", 1), "127.0.0.1", False),
        (("::ffff:10.0.0.7", 1), "127.0.0.1", False),
        (("fe80::1%eth0", 1), "127.0.0.1", False),
        (("not an address", 1), "127.0.0.1", False),
        (None, "127.0.0.1", False),
    ],
)
def test_what_counts_as_loopback(client: tuple[str, int] | None, host: str, expected: bool) -> None:
    request = Request({"type": "http", "client": client, "headers": [(b"host", host.encode())]})
    assert is_from_loopback(request) is expected


@pytest.mark.parametrize(
    ("header", "may"),
    [
        pytest.param(b"", True, id="none"),
        pytest.param(b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 8080\r\n", False, id="of a stranger"),
        pytest.param(b"PROXY TCP4 127.0.0.1 127.0.0.1 56324 8080\r\n", True, id="of someone here"),
        pytest.param(b"PROXY UNKNOWN\r\n", False, id="of nobody"),
        pytest.param(bytes.fromhex("0d0a0d0a000d0a515549540a20000000"), False, id="of the balancer itself"),
    ],
)
async def test_through_a_balancer_on_loopback_the_source_of_its_header_counts(
    worker: Worker, header: bytes, may: bool
) -> None:
    request = b"DELETE /v1/kv/ns/key HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    async with line_to(worker.port) as line:
        await line.say(header + request)
        status = int((await line.all()).split(b" ", 2)[1])
    assert status == (404 if may else 403)
