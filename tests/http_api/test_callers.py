"""Who may send what: tokens, roles, policies, and the three answers missing, wrong and not allowed."""

import logging
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType

import httpx
import pytest
from starlette.requests import Request

from routebook.http_api.callers import is_from_loopback
from routebook.model.identity import Identity, Role
from routebook.model.names import Caller
from routebook.store.namespace import Namespace
from tests.http_api.conftest import Worker, running, seat
from tests.http_api.ports import raw_connection

TOKEN = "correct-horse"
ALL_ADDRESSES = {"bind_address": "0.0.0.0"}
ADMINISTRATIVE = [
    ("GET", "/v1/kv/ns", Role.OPERATOR),
    ("GET", "/v1/kv/ns/key", Role.OPERATOR),
    ("PUT", "/v1/kv/ns/key", Role.OPERATOR),
    ("DELETE", "/v1/kv/ns/key", Role.OPERATOR),
    ("POST", "/v1/expiry/release", Role.OPERATOR),
    ("POST", "/v1/changes/baseline", Role.OPERATOR),
    ("PUT", "/v1/brokers/broker-a/write-permission", Role.OPERATOR),
    ("DELETE", "/v1/topics/TopicA", Role.OPERATOR),
    ("DELETE", seat(), Role.BROKER),
    ("GET", "/v1/settings", Role.ADMIN),
    ("PUT", "/v1/settings/hold_percent", Role.ADMIN),
    ("DELETE", "/v1/settings/hold_percent", Role.ADMIN),
    ("GET", "/v1/kv", Role.OPERATOR),
    ("DELETE", "/v1/readers/nobody", Role.OPERATOR),
    ("DELETE", "/v1/topics/TopicA?dry_run=true", Role.OPERATOR),
    ("GET", "/v1/snapshot", Role.ADMIN),
    ("PUT", "/v1/snapshot", Role.ADMIN),
    ("GET", "/v1/identities", Role.ADMIN),
    ("POST", "/v1/identities", Role.ADMIN),
    ("DELETE", "/v1/identities/nobody", Role.ADMIN),
]
OF_BROKERS = [("PUT", seat()), ("POST", f"{seat()}/heartbeat"), ("PUT", "/v1/topics/T")]
FORWARDED = {"x-forwarded-for": "192.0.2.7"}
BODIES: dict[tuple[str, str], object] = {
    ("PUT", "/v1/kv/ns/key"): {"value": "x"},
    ("PUT", "/v1/settings/hold_percent"): {"value": 31},
    ("PUT", "/v1/brokers/broker-a/write-permission"): {"writable": False},
    ("PUT", "/v1/snapshot"): {"snapshot": 1},
    ("PUT", seat()): {"address": "127.0.0.11:10911", "topics": {"TopicA": {}}},
    ("PUT", "/v1/topics/T"): {"queues": {"broker-a": {}}},
    ("POST", "/v1/identities"): {"name": "new", "role": "read"},
}
every_administrative_verb = pytest.mark.parametrize(("method", "path", "role"), ADMINISTRATIVE)
every_verb_of_brokers = pytest.mark.parametrize(("method", "path"), OF_BROKERS)


@pytest.fixture
async def public_worker(namespace: Namespace) -> AsyncIterator[Worker]:
    """A worker of a service that listens on all addresses."""
    async with running(namespace, admin_token=TOKEN, **ALL_ADDRESSES) as one:
        yield one


async def send(worker: Worker, method: str, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return await worker.http.request(method, path, headers=headers, json=BODIES.get((method, path)))


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def token_of(
    worker: Worker, role: Role, name: str = "someone", policy: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> dict[str, str]:
    created = await worker.registry.identities.create(Identity(name, role, **policy), Caller("test"))
    return bearer(created.token)


def kind(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("type", "")


@every_administrative_verb
async def test_an_administrative_verb_without_a_token_is_refused_from_loopback_too(
    public_worker: Worker, method: str, path: str, role: Role
) -> None:
    await public_worker.put_broker()
    answer = await send(public_worker, method, path)
    assert kind(answer) == (401, "token-missing")
    assert answer.headers["www-authenticate"] == 'Bearer realm="routebook"'
    assert role.label in answer.json()["detail"]
    assert public_worker.registry.replica.version == 1


@every_administrative_verb
async def test_a_service_on_loopback_only_needs_no_token(worker: Worker, method: str, path: str, role: Role) -> None:
    del role
    await worker.put_broker()
    assert (await send(worker, method, path)).status_code not in {401, 403}


@every_administrative_verb
async def test_a_forwarded_request_needs_a_token_on_loopback_too(
    worker: Worker, method: str, path: str, role: Role
) -> None:
    del role
    answer = await send(worker, method, path, FORWARDED)
    assert kind(answer) == (401, "token-missing")
    assert "ROUTEBOOK_ADMIN_TOKEN" in answer.json()["advice"]


@every_administrative_verb
async def test_each_verb_demands_its_role(public_worker: Worker, method: str, path: str, role: Role) -> None:
    await public_worker.put_broker()
    for given in Role:
        headers = await token_of(public_worker, given, f"id-{given.label}")
        answer = await send(public_worker, method, path, headers)
        if given < role:
            assert kind(answer) == (403, "forbidden")
            assert f"has the role {given.label}; this request needs {role.label}" in answer.json()["detail"]
        else:
            assert answer.status_code not in {401, 403}


async def test_the_admin_token_is_an_administrator(public_worker: Worker) -> None:
    assert (await send(public_worker, "PUT", "/v1/settings/hold_percent", bearer(TOKEN))).status_code == 200


@pytest.mark.parametrize("header", ["Bearer x", "Bearer é", f"bearer {TOKEN}x", f"Bearer {TOKEN} more"])
async def test_a_wrong_token_is_called_wrong(public_worker: Worker, header: str) -> None:
    answer = await public_worker.http.get("/v1/settings", headers=[(b"authorization", header.encode())])
    assert kind(answer) == (401, "token-wrong")
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


async def test_another_scheme_is_no_token(public_worker: Worker) -> None:
    answer = await public_worker.http.get("/v1/settings", headers={"authorization": f"Basic {TOKEN}"})
    assert kind(answer) == (401, "token-missing")


async def test_a_wrong_token_is_refused_on_loopback_only_and_for_open_verbs_too(worker: Worker) -> None:
    for method, path in [("GET", "/v1/settings"), *OF_BROKERS]:
        assert kind(await send(worker, method, path, bearer("stale"))) == (401, "token-wrong")


async def test_a_revoked_token_is_wrong(public_worker: Worker) -> None:
    headers = await token_of(public_worker, Role.ADMIN)
    assert (await send(public_worker, "GET", "/v1/settings", headers)).status_code == 200
    await public_worker.registry.identities.revoke("someone", Caller("test"))
    assert kind(await send(public_worker, "GET", "/v1/settings", headers)) == (401, "token-wrong")


async def test_an_expired_token_is_wrong(public_worker: Worker) -> None:
    created = await public_worker.registry.identities.create(
        Identity("brief", Role.ADMIN), Caller("test"), valid_for_ms=1
    )
    assert public_worker.registry.identities.any
    assert kind(await send(public_worker, "GET", "/v1/settings", bearer(created.token))) == (401, "token-wrong")


# -- brokers


@every_verb_of_brokers
async def test_brokers_need_no_token_until_an_identity_with_that_role_exists(
    public_worker: Worker, method: str, path: str
) -> None:
    await public_worker.put_broker()
    await token_of(public_worker, Role.OPERATOR, "ops")
    assert (await send(public_worker, method, path)).status_code == 200
    headers = await token_of(public_worker, Role.BROKER, "fleet")
    assert kind(await send(public_worker, method, path)) == (401, "token-missing")
    assert (await send(public_worker, method, path, headers)).status_code == 200
    reader = await token_of(public_worker, Role.READ, "reader")
    assert kind(await send(public_worker, method, path, reader)) == (403, "forbidden")


@pytest.mark.parametrize(
    "policy", [{"clusters": ("Default",)}, {"brokers": ("broker-",)}, {"clusters": ("x", "DefaultCluster")}]
)
@every_verb_of_brokers
async def test_a_policy_allows_the_brokers_that_it_covers(
    public_worker: Worker, method: str, path: str, policy: dict[str, tuple[str, ...]]
) -> None:
    await public_worker.put_broker()
    headers = await token_of(public_worker, Role.BROKER, policy=policy)
    assert (await send(public_worker, method, path, headers)).status_code == 200


@pytest.mark.parametrize("policy", [{"clusters": ("other",)}, {"brokers": ("broker-b",)}])
@pytest.mark.parametrize(("method", "path"), [*OF_BROKERS, ("DELETE", seat())])
async def test_a_policy_refuses_other_brokers(
    public_worker: Worker, method: str, path: str, policy: dict[str, tuple[str, ...]]
) -> None:
    await public_worker.put_broker()
    headers = await token_of(public_worker, Role.BROKER, policy=policy)
    answer = await send(public_worker, method, path, headers)
    assert kind(answer) == (403, "forbidden")
    assert "someone" in answer.json()["detail"]


async def test_a_policy_limits_topics(public_worker: Worker) -> None:
    await public_worker.put_broker()
    headers = await token_of(public_worker, Role.OPERATOR, policy={"topics": ("Pay",)})
    assert kind(await send(public_worker, "DELETE", "/v1/topics/TopicA", headers)) == (403, "forbidden")
    assert kind(await send(public_worker, "PUT", "/v1/topics/T", headers)) == (403, "forbidden")
    put = await public_worker.http.put("/v1/topics/PayOut", headers=headers, json={"queues": {"broker-a": {}}})
    assert put.status_code == 200
    assert (await send(public_worker, "DELETE", "/v1/topics/PayOut", headers)).json()["count"] == 1
    order = "/v1/kv/ORDER_TOPIC_CONFIG"
    for key, status in (("PayOut", 200), ("TopicA", 403)):
        answer = await public_worker.http.put(f"{order}/{key}", headers=headers, json={"value": "broker-a:8"})
        assert answer.status_code == status


async def test_a_topic_is_deleted_only_if_all_its_brokers_are_covered(public_worker: Worker) -> None:
    await public_worker.put_broker("broker-a")
    await public_worker.put_broker("other-b", address="127.0.0.99:1")
    headers = await token_of(public_worker, Role.OPERATOR, policy={"brokers": ("broker-",)})
    assert kind(await send(public_worker, "DELETE", "/v1/topics/TopicA", headers)) == (403, "forbidden")
    await public_worker.http.put("/v1/topics/Mine", headers=headers, json={"queues": {"broker-a": {}}})
    assert (await send(public_worker, "DELETE", "/v1/topics/Mine", headers)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [one for one in ADMINISTRATIVE if "/topics/" not in one[1] and "/brokers/" not in one[1]],
)
async def test_what_concerns_the_fleet_needs_an_unlimited_identity(
    public_worker: Worker, method: str, path: str, role: Role
) -> None:
    del role
    headers = await token_of(public_worker, Role.ADMIN, policy={"clusters": ("DefaultCluster",)})
    answer = await send(public_worker, method, path, headers)
    assert kind(answer) == (403, "forbidden")
    assert "covers clusters DefaultCluster*" in answer.json()["detail"]


async def test_reads_need_no_token(public_worker: Worker) -> None:
    await public_worker.put_broker()
    await token_of(public_worker, Role.BROKER)
    for path in ("/v1/routes/TopicA", "/v1/topics", "/v1/brokers", "/v1/status", "/v1/changes", "/rocketmq/nsaddr"):
        assert (await public_worker.http.get(path)).status_code == 200


READS = ["/v1/routes/TopicA", "/v1/routes/TopicA?min_version=0", "/v1/topics", "/v1/status", "/v1/changes", "/v1/watch"]


@pytest.mark.parametrize("path", READS)
async def test_reads_can_demand_a_token(namespace: Namespace, path: str) -> None:
    async with running(namespace, http_reads="token", **ALL_ADDRESSES) as worker:
        await worker.put_broker()
        assert kind(await send(worker, "GET", path)) == (401, "token-missing")
        assert kind(await send(worker, "GET", path, bearer("wrong"))) == (401, "token-wrong")
        headers = await token_of(worker, Role.READ)
        async with worker.http.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200
        for open_path in ("/rocketmq/nsaddr", "/docs", "/openapi.json"):
            assert (await worker.http.get(open_path)).status_code == 200


@pytest.mark.parametrize(
    ("policy", "covered", "outside"),
    [
        (
            {"topics": ("TopicA",)},
            ["/v1/routes/TopicA", "/v1/topics/TopicA", "/v1/watch?topic=TopicA", "/v1/topics", "/v1/status"],
            ["/v1/routes/other", "/v1/routes/other?min_version=0", "/v1/topics/other", "/v1/watch?topic=other"],
        ),
        (
            {"topics": ("TopicA",)},
            ["/console/topic?name=TopicA", "/v1/changes?topic=TopicA"],
            ["/console/topic?name=other", "/v1/changes?topic=other", "/v1/changes?topic=TopicA&topic=other"],
        ),
        (
            {"brokers": ("broker-",)},
            ["/v1/brokers/broker-a", "/v1/topics?broker=broker-a", "/console/broker?name=broker-a"],
            ["/v1/brokers/other", "/v1/topics?broker=other", "/console/broker?name=other"],
        ),
        (
            {"clusters": ("east",)},
            ["/v1/clusters/east", "/v1/brokers/broker-a", "/v1/topics?cluster=east"],
            ["/v1/clusters/other", "/v1/brokers/unknown", "/v1/brokers/west-a", "/v1/topics?cluster=other"],
        ),
    ],
)
async def test_reads_that_need_a_token_are_limited_by_its_policy(
    namespace: Namespace, policy: Mapping[str, tuple[str, ...]], covered: list[str], outside: list[str]
) -> None:
    async with running(namespace, http_reads="token", **ALL_ADDRESSES) as worker:
        for path, address in ((seat(cluster="east"), "127.0.0.11:1"), (seat("west-a", cluster="west"), "127.0.0.12:1")):
            await worker.http.put(path, json={"address": address, "topics": {"TopicA": {}}})
        headers = await token_of(worker, Role.READ, policy=policy)
        for path in covered:
            async with worker.http.stream("GET", path, headers=headers) as answer:
                assert answer.status_code == 200, path
        for path in outside:
            answer = await send(worker, "GET", path, headers)
            assert kind(answer) == (403, "forbidden"), path
            assert "does not cover" in answer.json()["detail"]
        refusals = worker.registry.audit.take_refusals()
        assert {(one.caller.actor, one.caller.verb) for one in refusals} == {("someone", "read")}


# -- guesses


async def test_wrong_tokens_are_limited_per_address(namespace: Namespace) -> None:
    limit = 3
    async with running(
        namespace,
        admin_token=TOKEN,
        max_failed_sign_ins_per_minute_per_address=str(limit),
        **ALL_ADDRESSES,
    ) as worker:
        for _ in range(limit):
            assert (await send(worker, "GET", "/v1/settings", bearer("guess"))).status_code == 401
        for token in ("guess", TOKEN):
            answer = await send(worker, "GET", "/v1/settings", bearer(token))
            assert kind(answer) == (429, "too-many-sign-ins")
            assert 1 <= int(answer.headers["retry-after"]) <= 60 // limit
            assert "max_failed_sign_ins_per_minute_per_address is 3" in answer.json()["detail"]
        assert kind(await send(worker, "GET", "/v1/settings")) == (401, "token-missing")
        assert (await worker.http.get("/v1/status")).status_code == 200


# -- pages of other sites, and relays


@pytest.mark.parametrize("path", ["/v1/kv/ns/key", seat(), f"{seat()}/heartbeat", "/v1/topics/T"])
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://[", "http://127.0.0.1:x"]
)
async def test_pages_of_other_sites_cannot_write(worker: Worker, path: str, origin: str) -> None:
    answer = await send(worker, "POST" if path.endswith("heartbeat") else "PUT", path, {"origin": origin})
    assert kind(answer) == (403, "foreign-origin")
    assert worker.registry.replica.version == 0


async def test_pages_of_the_same_origin_can_write(worker: Worker) -> None:
    origin = f"http://127.0.0.1:{worker.port}"
    assert (await send(worker, "PUT", "/v1/kv/ns/key", {"origin": origin})).status_code == 200


@pytest.mark.parametrize(
    "header",
    [{"forwarded": "for=192.0.2.7"}, FORWARDED, {"x-real-ip": "192.0.2.7"}, {"via": "1.1 proxy"}],
    ids=lambda header: next(iter(header)),
)
async def test_a_request_with_a_forwarding_header_is_not_from_loopback(worker: Worker, header: dict[str, str]) -> None:
    assert (await send(worker, "PUT", "/v1/kv/ns/key", header)).status_code == 401


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (("127.0.0.1", 1), True),
        (("127.9.9.9", 1), True),
        (("::1", 1), True),
        (("::ffff:127.0.0.1", 1), True),
        (("10.0.0.7", 1), False),
        (("::ffff:10.0.0.7", 1), False),
        (("fe80::1%eth0", 1), False),
        (("not an address", 1), False),
        (None, False),
    ],
)
def test_loopback_is_judged_by_the_address(client: tuple[str, int] | None, expected: bool) -> None:
    assert is_from_loopback(Request({"type": "http", "client": client, "headers": []})) is expected


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
async def test_behind_a_trusted_balancer_permission_depends_on_the_proxy_header(
    namespace: Namespace, header: bytes, is_allowed: bool
) -> None:
    async with running(namespace, proxy_from="127.0.0.0/8") as worker:
        assert await status_of_a_deletion(worker, header) == (404 if is_allowed else 401)


async def test_no_network_is_trusted_for_proxy_headers_by_default(worker: Worker) -> None:
    assert await status_of_a_deletion(worker, b"PROXY TCP4 127.0.0.1 127.0.0.1 56324 8080\r\n") == 400


async def status_of_a_deletion(worker: Worker, proxy_header: bytes) -> int:
    request = b"DELETE /v1/kv/ns/key HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    async with raw_connection(worker.port) as connection:
        await connection.send(proxy_header + request)
        return int((await connection.read_all()).split(b" ", 2)[1])


# -- what is recorded


async def test_administrative_verbs_are_logged(public_worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    headers = await token_of(public_worker, Role.OPERATOR, "ops")
    with caplog.at_level(logging.INFO, "routebook.audit"):
        await send(public_worker, "PUT", "/v1/kv/ns/key", headers)
        await send(public_worker, "PUT", "/v1/kv/ns/key", bearer(TOKEN))
        await send(public_worker, "PUT", "/v1/kv/ns/key")
        await send(public_worker, "DELETE", "/v1/kv/ns/nothing", headers)
    records = [vars(record) for record in caplog.records if record.name == "routebook.audit"]
    assert [one["outcome"] for one in records] == ["done", "done", "refused", "refused"]
    assert [one["actor"] for one in records] == ["ops", "admin-token", "anonymous", "ops"]
    assert [one.get("reason", "").partition(":")[0] for one in records] == ["", "", "token-missing", "key-not-found"]
    assert {one["port"] for one in records} == {"http"}
    assert all(one["source"].startswith("127.0.0.1:") and "/v1/kv/ns/" in one["object"] for one in records)
    assert not any(TOKEN in str(one) for one in records)


async def test_the_history_names_the_identity(public_worker: Worker) -> None:
    headers = await token_of(public_worker, Role.OPERATOR, "ops")
    await send(public_worker, "PUT", "/v1/kv/ns/key", headers)
    await send(public_worker, "PUT", seat(), headers)
    await send(public_worker, "PUT", seat())
    entries = (await public_worker.http.get("/v1/changes")).json()["changes"]
    assert [entry["actor"] for entry in entries] == ["test", "ops", "ops"]
    assert entries[1]["source"].startswith("127.0.0.1:")


async def test_on_loopback_only_the_history_names_the_operator(worker: Worker) -> None:
    await send(worker, "PUT", seat())
    await send(worker, "PUT", "/v1/kv/ns/key")
    entries = (await worker.http.get("/v1/changes")).json()["changes"]
    assert [entry["actor"] for entry in entries] == ["anonymous", "operator"]
