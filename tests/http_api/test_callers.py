"""Permission for administrative verbs."""

import logging
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.requests import Request

from routebook.http_api.callers import is_from_loopback
from routebook.store.namespace import Namespace
from tests.http_api.conftest import Worker, running, seat
from tests.http_api.ports import raw_connection

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
async def worker_with_token(namespace: Namespace) -> AsyncIterator[Worker]:
    async with running(namespace, admin_token=TOKEN) as one:
        yield one


async def send(worker: Worker, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    body = BODIES.get(path) if method == "PUT" else None
    return await worker.http.request(method, path, headers=headers, json=body)


@pytest.mark.parametrize(("method", "path"), ADMINISTRATIVE)
async def test_without_a_token_administrative_verbs_are_refused_from_elsewhere(
    worker: Worker, method: str, path: str
) -> None:
    await worker.put_broker()
    answer = await send(worker, method, path, FORWARDED)
    assert (answer.status_code, answer.json()["type"]) == (403, "forbidden")
    assert "ROUTEBOOK_ADMIN_TOKEN" in answer.json()["advice"]
    assert worker.registry.replica.version == 1


@pytest.mark.parametrize(("method", "path"), ADMINISTRATIVE)
async def test_administrative_verbs_are_allowed_from_loopback(
    worker_with_token: Worker, method: str, path: str
) -> None:
    await worker_with_token.put_broker()
    answer = await send(worker_with_token, method, path, {})
    assert answer.status_code != 403


async def test_with_the_token_administrative_verbs_are_allowed_from_elsewhere(worker_with_token: Worker) -> None:
    with_token = FORWARDED | {"authorization": f"Bearer {TOKEN}"}
    assert (await send(worker_with_token, "PUT", "/v1/kv/ns/key", with_token)).status_code == 200
    for wrong in (
        {},
        {"authorization": "Bearer x"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer é"},
    ):
        headers = {key.encode(): value.encode() for key, value in (FORWARDED | wrong).items()}
        answer = await worker_with_token.http.put("/v1/kv/ns/key", headers=headers, json={"value": "y"})
        assert answer.status_code == 403, wrong
    assert worker_with_token.registry.kv_value("ns", "key") == "x"


@pytest.mark.parametrize(
    "header",
    [{"forwarded": "for=192.0.2.7"}, FORWARDED, {"x-real-ip": "192.0.2.7"}, {"via": "1.1 proxy"}],
    ids=lambda header: next(iter(header)),
)
async def test_a_request_with_a_forwarding_header_is_not_from_loopback(worker: Worker, header: dict[str, str]) -> None:
    assert (await send(worker, "PUT", "/v1/kv/ns/key", header)).status_code == 403


@pytest.mark.parametrize("path", ["/v1/kv/ns/key", seat(), f"{seat()}/heartbeat", "/v1/topics/T"])
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://[", "http://127.0.0.1:x"]
)
async def test_pages_of_other_sites_cannot_write(worker: Worker, path: str, origin: str) -> None:
    method = "POST" if path.endswith("heartbeat") else "PUT"
    bodies: dict[str, object] = {seat(): {"address": "127.0.0.1:1"}, "/v1/topics/T": {"queues": {"b": {}}}}
    body = bodies.get(path, {"value": "x"})
    answer = await worker.http.request(method, path, headers={"origin": origin}, json=body)
    assert (answer.status_code, answer.json()["type"]) == (403, "foreign-origin")
    assert worker.registry.replica.version == 0


async def test_pages_of_the_same_origin_can_write(worker: Worker) -> None:
    origin = f"http://127.0.0.1:{worker.port}"
    assert (await send(worker, "PUT", "/v1/kv/ns/key", {"origin": origin})).status_code == 200


async def test_dns_rebinding_does_not_give_permission(worker: Worker) -> None:
    name = f"evil.example:{worker.port}"
    headers = {"host": name, "origin": f"http://{name}"}
    assert (await send(worker, "PUT", "/v1/kv/ns/key", headers)).status_code == 403
    assert (await send(worker, "GET", "/v1/settings", {"host": name})).status_code == 403


async def test_other_writes_need_no_permission(worker: Worker) -> None:
    answer = await worker.http.put(seat(), headers=FORWARDED, json={"address": "127.0.0.11:10911"})
    assert answer.status_code == 200
    assert (await worker.http.post(f"{seat()}/heartbeat", headers=FORWARDED)).status_code == 200
    put = await worker.http.put("/v1/topics/T", headers=FORWARDED, json={"queues": {"broker-a": {}}})
    assert put.status_code == 200


async def test_administrative_verbs_are_logged(worker_with_token: Worker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "routebook.audit"):
        await send(worker_with_token, "PUT", "/v1/kv/ns/key", {})
        await send(worker_with_token, "PUT", "/v1/kv/ns/key", FORWARDED | {"authorization": f"Bearer {TOKEN}"})
        await send(worker_with_token, "PUT", "/v1/kv/ns/key", FORWARDED)
        await send(worker_with_token, "DELETE", "/v1/kv/ns/nothing", {})
    records = [vars(record) for record in caplog.records if record.name == "routebook.audit"]
    assert [one["outcome"] for one in records] == ["done", "done", "refused", "refused"]
    assert [one["actor"] for one in records] == ["operator", "admin-token", "anonymous", "operator"]
    assert [one.get("reason", "").partition(":")[0] for one in records] == ["", "", "forbidden", "key-not-found"]
    assert {one["port"] for one in records} == {"http"}
    assert all(one["source"].startswith("127.0.0.1:") and "/v1/kv/ns/" in one["object"] for one in records)
    assert not any(TOKEN in str(one) for one in records)


async def test_the_history_names_the_operator(worker: Worker) -> None:
    await send(worker, "PUT", "/v1/kv/ns/key", {})
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
def test_loopback_is_judged_by_address_and_host_header(
    client: tuple[str, int] | None, host: str, expected: bool
) -> None:
    request = Request({"type": "http", "client": client, "headers": [(b"host", host.encode())]})
    assert is_from_loopback(request) is expected


@pytest.mark.parametrize(
    ("header", "is_allowed"),
    [
        pytest.param(b"", True, id="none"),
        pytest.param(b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 8080\r\n", False, id="other machine"),
        pytest.param(b"PROXY TCP4 127.0.0.1 127.0.0.1 56324 8080\r\n", True, id="loopback"),
        pytest.param(b"PROXY UNKNOWN\r\n", False, id="unknown source"),
        pytest.param(bytes.fromhex("0d0a0d0a000d0a515549540a20000000"), False, id="local command of the balancer"),
    ],
)
async def test_behind_a_balancer_on_loopback_permission_depends_on_the_proxy_header(
    worker: Worker, header: bytes, is_allowed: bool
) -> None:
    request = b"DELETE /v1/kv/ns/key HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    async with raw_connection(worker.port) as connection:
        await connection.send(header + request)
        status = int((await connection.read_all()).split(b" ", 2)[1])
    assert status == (404 if is_allowed else 403)
