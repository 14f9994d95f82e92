"""Registrations, heartbeats, deregistrations; topics, permissions, key-values, settings."""

import asyncio

import pytest

from routebook.http_api.registration import REGISTRATION_EXAMPLE
from routebook.store.namespace import Namespace
from tests.http_api.conftest import CLUSTER, Worker, running, seat


async def test_the_example_in_the_api_description_registers_a_broker(worker: Worker) -> None:
    answer = await worker.http.put(seat(), json=REGISTRATION_EXAMPLE)
    body = answer.json()
    assert (answer.status_code, body["status"], body["master_address"]) == (200, "changed", None)
    assert body["version"] == worker.registry.replica.version
    assert (await worker.http.get("/v1/routes/TopicA")).status_code == 200


async def test_repeating_a_registration_changes_nothing(worker: Worker) -> None:
    version = {"counter": 1}
    first = (await worker.put_broker(data_version=version)).json()
    again = (await worker.put_broker(data_version=version)).json()
    assert again == first | {"status": "unchanged"}


async def test_every_repeat_of_a_registration_gets_the_same_response(worker: Worker) -> None:
    body = {"address": "127.0.0.11:10911", "topics": {"TopicA": {}}, "data_version": {"counter": 1}}
    same_origin = {"origin": f"http://127.0.0.1:{worker.port}"}
    await worker.http.put(seat(), json=body)
    second = await worker.http.put(seat(), json=body)
    third = await worker.http.put(seat(), json=body, headers=same_origin)
    assert second.content == third.content
    assert dict(second.headers) | {"date": ""} == dict(third.headers) | {"date": ""}


async def test_a_repeated_registration_restores_what_was_deleted(worker: Worker) -> None:
    body = {"address": "127.0.0.11:10911", "topics": {"TopicA": {}}, "data_version": {"counter": 1}}
    await worker.http.put(seat(), json=body)
    await worker.http.delete("/v1/topics/TopicA")
    assert (await worker.http.put(seat(), json=body)).json()["status"] == "changed"
    assert (await worker.http.get("/v1/routes/TopicA")).status_code == 200
    await worker.http.delete(seat())
    assert (await worker.http.put(seat(), json=body)).json()["status"] == "changed"
    assert (await worker.http.put(seat(), json=body)).json()["status"] == "unchanged"


async def test_the_same_body_for_another_seat_is_a_new_registration(worker: Worker) -> None:
    body = {"address": "127.0.0.11:10911", "topics": {"TopicA": {}}, "data_version": {"counter": 1}}
    for path in (seat("a"), seat("b"), seat("a", cluster="Other"), seat("b", 1)):
        await worker.http.put(path, json=body)
    clusters = (await worker.http.get("/v1/clusters")).json()["clusters"]
    assert {one["name"]: one["brokers"] for one in clusters} == {CLUSTER: ["a", "b"], "Other": ["a"]}


async def test_an_invalid_body_is_refused_every_time(worker: Worker) -> None:
    for _ in range(2):
        answer = await worker.http.put(seat(), json={"address": "127.0.0.11:10911", "topics": {"": {}}})
        assert answer.status_code == 422


async def test_the_response_to_a_slave_has_its_master(worker: Worker) -> None:
    await worker.put_broker(ha_address="127.0.0.11:10912")
    slave = (await worker.put_broker(broker_id=1)).json()
    assert (slave["master_address"], slave["master_ha_address"]) == ("127.0.0.11:10911", "127.0.0.11:10912")


async def test_topics_are_merged_unless_replace_is_set(worker: Worker) -> None:
    await worker.put_broker(topics={"A": {}, "B": {}})
    await worker.put_broker(topics={"C": {}})
    assert await topics_of(worker) == ["A", "B", "C"]
    await worker.http.put(seat(), params={"replace": True}, json={"address": "127.0.0.11:10911", "topics": {"C": {}}})
    assert await topics_of(worker) == ["C"]


async def topics_of(worker: Worker) -> list[str]:
    return [one["topic"] for one in (await worker.http.get("/v1/topics")).json()["topics"]]


async def test_static_topics_are_kept_and_returned(worker: Worker) -> None:
    mapping = {"bname": "broker-a", "total_queues": 4, "epoch": 7, "current_ids": {"0": 0, "2": 1}}
    await worker.put_broker(mappings={"TopicA": mapping})
    route = (await worker.http.get("/v1/routes/TopicA")).json()
    assert route["topicQueueMappingByBroker"]["broker-a"]["currIdMap"] == {"0": 0, "2": 1}


async def test_a_broker_can_be_deregistered_once(worker: Worker) -> None:
    await worker.put_broker()
    assert (await worker.http.delete(seat())).status_code == 200
    assert (await worker.http.get("/v1/routes/TopicA")).status_code == 404
    again = await worker.http.delete(seat())
    assert (again.status_code, again.json()["type"]) == (404, "broker-not-found")


async def test_only_a_registered_broker_can_send_a_heartbeat(worker: Worker) -> None:
    await worker.put_broker()
    assert (await worker.http.post(f"{seat()}/heartbeat")).status_code == 200
    unknown = await worker.http.post(f"{seat('missing')}/heartbeat")
    assert (unknown.status_code, unknown.json()["type"]) == (404, "unknown-broker")
    assert "PUT" in unknown.json()["advice"]


async def test_write_permission_can_be_removed_and_restored(worker: Worker) -> None:
    await worker.put_broker(topics={"A": {}, "B": {}})
    path = "/v1/brokers/broker-a/write-permission"
    assert (await worker.http.put(path, json={"writable": False})).json()["count"] == 2
    assert (await worker.http.get("/v1/routes/A")).json()["queueDatas"][0]["perm"] == 4
    assert (await worker.http.put(path, json={"writable": True})).json()["count"] == 2
    assert (await worker.http.get("/v1/routes/A")).json()["queueDatas"][0]["perm"] == 6


async def test_topics_are_registered_and_deleted(worker: Worker) -> None:
    await worker.put_broker()
    answer = await worker.http.put("/v1/topics/New", json={"queues": {"broker-a": {"read_queues": 2}}})
    assert (answer.status_code, answer.json()["count"]) == (200, 1)
    assert (await worker.http.get("/v1/topics/New")).json()["queues"]["broker-a"]["read_queues"] == 2
    unknown = await worker.http.put("/v1/topics/New2", json={"queues": {"missing": {}}})
    assert (unknown.status_code, unknown.json()["type"]) == (404, "broker-not-found")
    assert (await worker.http.delete("/v1/topics/New", params={"cluster": "Other"})).json()["count"] == 0
    assert (await worker.http.delete("/v1/topics/New", params={"cluster": CLUSTER})).json()["count"] == 1
    assert (await worker.http.get("/v1/topics/New")).status_code == 404


async def test_key_values_are_written_read_and_deleted(worker: Worker) -> None:
    path = "/v1/kv/ORDER_TOPIC_CONFIG/a/b"
    assert (await worker.http.put(path, json={"value": "broker-a:8"})).status_code == 200
    assert (await worker.http.get(path)).json()["value"] == "broker-a:8"
    table = (await worker.http.get("/v1/kv/ORDER_TOPIC_CONFIG")).json()
    assert table["table"] == {"a/b": "broker-a:8"}
    assert (await worker.http.delete(path)).status_code == 200
    assert (await worker.http.delete(path)).json()["type"] == "key-not-found"
    assert (await worker.http.get(path)).json()["type"] == "key-not-found"
    assert (await worker.http.get("/v1/kv/ORDER_TOPIC_CONFIG")).json()["table"] == {}
    assert (await worker.http.get("/v1/kv/missing")).status_code == 404


@pytest.mark.parametrize(("value", "text"), [(40, "40"), ("40", "40")], ids=["a number", "its text"])
async def test_a_setting_changes_at_run_time(worker: Worker, value: object, text: str) -> None:
    answer = await worker.http.put("/v1/settings/hold_percent", json={"value": value})
    assert answer.status_code == 200
    shown = {one["key"]: one for one in (await worker.http.get("/v1/settings")).json()["settings"]}
    assert shown["hold_percent"] == {"key": "hold_percent", "value": text, "origin": "run time"}


@pytest.mark.parametrize(
    ("key", "value"), [("hold_percent", "many"), ("hold_percent", 1000), ("http_port", 1), ("nothing", 1)]
)
async def test_a_setting_out_of_range_or_fixed_is_refused(worker: Worker, key: str, value: object) -> None:
    answer = await worker.http.put(f"/v1/settings/{key}", json={"value": value})
    assert (answer.status_code, answer.json()["type"]) == (422, "invalid-input")
    assert key in answer.json()["detail"]


async def test_expiry_is_shown_and_released(worker: Worker) -> None:
    state = (await worker.http.get("/v1/expiry")).json()
    assert (state["held"], state["brokers"]) == (False, [])
    assert (await worker.http.post("/v1/expiry/release")).json()["held"] is False


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"adress": "x"}, "adress"),
        ({"address": "no port"}, "address"),
        ({"address": "127.0.0.1:0"}, "address"),
        ({"topics": {"": {}}}, "topic"),
        ({"topics": {"A": {"perm": 99}}}, "perm"),
        ({"topics": {"A": {"read_queues": -1}}}, "read_queues"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"topics": {"A": {"colour": 1}}}, "colour"),
        ({"mappings": {"A": {"bname": "b", "current_ids": {"x": 1}}}}, "current_ids"),
    ],
)
async def test_the_problem_names_the_invalid_field(worker: Worker, change: dict[str, object], where: str) -> None:
    answer = await worker.http.put(seat(), json={"address": "127.0.0.11:10911"} | change)
    assert (answer.status_code, answer.json()["type"]) == (422, "invalid-input")
    assert where in answer.json()["detail"]
    assert worker.registry.replica.version == 0


async def test_broken_json_is_a_problem(worker: Worker) -> None:
    for body in (b"{", b"\xff\xfe", b'{"a":' + b"[" * 100_000, b'{"address": ' + b"9" * 6000 + b"}"):
        answer = await worker.http.put(seat(), content=body)
        assert answer.status_code == 400, body[:9]
        assert answer.json()["type"] in {"broken-json", "bad-request"}


async def test_the_content_type_of_a_body_is_ignored(worker: Worker) -> None:
    answer = await worker.http.put(
        seat(),
        content=b'{"address": "127.0.0.11:10911"}',
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nothing", 404, "no-such-path"),
        ("GET", "/v1/routes/", 404, "topic-not-found"),
        ("POST", "/v1/topics", 405, "method-not-allowed"),
        ("PATCH", "/v1/routes/TopicA", 405, "method-not-allowed"),
        ("PUT", "/v1/clusters/c/brokers/b/x", 422, "invalid-input"),
        ("GET", "/v1/topics?limit=0", 422, "invalid-input"),
        ("GET", "/v1/topics?cursor=!", 422, "invalid-input"),
        ("HEAD", "/v1/watch", 405, "method-not-allowed"),
    ],
)
async def test_every_error_response_is_a_problem(
    worker: Worker, method: str, path: str, status: int, kind: str
) -> None:
    answer = await worker.http.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    if method != "HEAD":
        assert (answer.json()["type"], answer.json()["status"]) == (kind, status)


async def test_another_worker_can_wait_for_a_write(worker: Worker, namespace: Namespace) -> None:
    async with running(namespace) as other:
        version = (await worker.put_broker()).json()["version"]
        answer = await other.http.get("/v1/routes/TopicA", params={"min_version": version})
        assert answer.status_code == 200


async def test_concurrent_registrations_all_succeed(worker: Worker) -> None:
    async def register(number: int) -> None:
        await worker.put_broker(f"b{number}", address=f"127.0.1.{number}:10911", topics={"TopicA": {}})

    await asyncio.gather(*(register(number) for number in range(50)))
    route = (await worker.http.get("/v1/routes/TopicA")).json()
    assert len(route["brokerDatas"]) == 50


async def test_the_size_of_a_value_is_limited(worker: Worker) -> None:
    path = "/v1/kv/ns/key"
    assert (await worker.http.put(path, json={"value": "é" * 32_768})).status_code == 200
    problem = (await worker.http.put(path, json={"value": "é" * 32_769})).json()
    assert (problem["type"], problem["setting"], problem["limit"]) == ("limit-reached", "max_key_value_bytes", 65_536)


async def test_the_number_of_filter_servers_is_limited(worker: Worker) -> None:
    body = {"address": "127.0.0.11:10911", "filters": [f"127.0.0.1:{number}" for number in range(1, 1002)]}
    answer = await worker.http.put(seat(), json=body)
    assert (answer.status_code, answer.json()["type"]) == (422, "invalid-input")


async def test_the_requests_of_an_address_are_limited(namespace: Namespace) -> None:
    async with running(namespace, max_requests_per_second_per_address="5") as worker:
        answers = [await worker.http.get("/v1/status") for _ in range(40)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert refused[0].json()["type"] == "too-many-requests"
        assert "max_requests_per_second_per_address is 5" in refused[0].json()["detail"]
        assert (await worker.http.put(seat(), json={"address": "127.0.0.11:10911"})).status_code == 200
