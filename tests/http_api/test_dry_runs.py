"""`dry_run=true` answers what a request would change, and changes nothing; unknown parameters are refused."""

from typing import Any

import pytest

from tests.http_api.conftest import Worker, running, seat


async def state(worker: Worker) -> dict[str, Any]:
    snapshot: dict[str, Any] = (await worker.http.get("/v1/snapshot")).json()
    return {key: value for key, value in snapshot.items() if key != "taken"}


async def planned(worker: Worker, method: str, path: str, body: object = None) -> dict[str, Any]:
    before = await state(worker)
    answer = await worker.http.request(method, path, params={"dry_run": True}, json=body)
    assert answer.status_code == 200, answer.text
    assert await state(worker) == before
    plan: dict[str, Any] = answer.json()
    assert plan["dry_run"] is True
    assert plan["version"] == worker.registry.replica.version
    return plan


def texts(plan: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["what"], one["before"], one["after"]) for one in plan["changes"]]


async def test_the_removal_of_a_broker_names_its_address_and_what_goes_with_the_last_one(worker: Worker) -> None:
    await worker.put_broker()
    await worker.put_broker(broker_id=1)
    slave = await planned(worker, "DELETE", seat(broker_id=1))
    assert texts(slave) == [("broker DefaultCluster/broker-a/1", "127.0.0.12:10911", "none")]
    await worker.http.delete(seat(broker_id=1))
    last = await planned(worker, "DELETE", seat())
    assert texts(last)[1:] == [
        ("group broker-a", "1 broker, 1 topics", "removed"),
        ("topic TopicA on broker-a", "perm 6, 16 read, 16 write", "none"),
    ]
    assert last["count"] == 3
    assert (await worker.http.delete(seat(broker_id=7), params={"dry_run": True})).status_code == 404


async def test_the_deletion_of_a_topic_names_its_brokers(worker: Worker) -> None:
    await worker.put_broker()
    await worker.put_broker("broker-b")
    plan = await planned(worker, "DELETE", "/v1/topics/TopicA")
    assert plan["count"] == 2
    assert texts(plan)[0] == ("topic TopicA on broker-a", "perm 6, 16 read, 16 write", "none")
    assert (await planned(worker, "DELETE", "/v1/topics/TopicB"))["count"] == 0


async def test_write_permission_names_the_topics_that_change(worker: Worker) -> None:
    await worker.put_broker(topics={"A": {}, "B": {"perm": 4}})
    path = "/v1/brokers/broker-a/write-permission"
    assert texts(await planned(worker, "PUT", path, {"writable": False})) == [
        ("topic A on broker-a", "perm 6", "perm 4")
    ]
    assert texts(await planned(worker, "PUT", path, {"writable": True})) == [
        ("topic B on broker-a", "perm 4", "perm 6")
    ]


async def test_a_long_list_is_cut_and_counted(worker: Worker) -> None:
    await worker.put_broker(topics={f"topic-{number}": {} for number in range(300)})
    plan = await planned(worker, "PUT", "/v1/brokers/broker-a/write-permission", {"writable": False})
    assert (plan["count"], len(plan["changes"])) == (300, 200)


async def test_key_values_are_planned_without_showing_them(worker: Worker) -> None:
    await worker.http.put("/v1/kv/n/k", json={"value": "secret"})
    assert texts(await planned(worker, "DELETE", "/v1/kv/n/k")) == [("key n/k", "value of 6 bytes", "none")]
    plan = await planned(worker, "PUT", "/v1/kv/n/k", {"value": "other-secret"})
    assert texts(plan) == [("key n/k", "value of 6 bytes", "value of 12 bytes")]
    assert (await planned(worker, "PUT", "/v1/kv/n/k", {"value": "secret"}))["count"] == 0
    assert (await worker.http.delete("/v1/kv/n/other", params={"dry_run": True})).status_code == 404


async def test_settings_are_planned_with_their_origin(worker: Worker) -> None:
    plan = await planned(worker, "PUT", "/v1/settings/hold_percent", {"value": 31})
    assert texts(plan) == [("setting hold_percent", "30 (default)", "31")]
    await worker.http.put("/v1/settings/hold_percent", json={"value": 31})
    reset = await planned(worker, "DELETE", "/v1/settings/hold_percent")
    assert texts(reset) == [("setting hold_percent", "31 (run time)", "30 (file or default)")]
    wrong = await worker.http.put("/v1/settings/hold_percent", params={"dry_run": True}, json={"value": 1000})
    assert wrong.status_code == 422


async def test_a_run_time_setting_is_reset(worker: Worker) -> None:
    path = "/v1/settings/hold_percent"
    await worker.http.put(path, json={"value": 31})
    assert (await worker.http.delete(path)).status_code == 200
    rows = {one["key"]: one for one in (await worker.http.get("/v1/settings")).json()["settings"]}
    assert rows["hold_percent"] == {"key": "hold_percent", "value": "30", "origin": "default"}
    newest = (await worker.http.get("/v1/changes", params={"kind": "settings-changed"})).json()["changes"][-1]
    assert (newest["key"], newest["value"], newest["before"], newest["actor"]) == (
        "hold_percent",
        None,
        "31",
        "operator",
    )
    again = await worker.http.delete(path)
    assert (again.status_code, again.json()["type"]) == (404, "run-time-setting-not-found")
    unknown = await worker.http.delete("/v1/settings/hold_procent")
    assert unknown.status_code == 422
    assert "hold_percent" in unknown.json()["advice"]


async def test_expiry_identities_and_readers_are_planned(worker: Worker) -> None:
    assert (await planned(worker, "POST", "/v1/expiry/release"))["count"] == 0
    await worker.http.post("/v1/identities", json={"name": "ci", "role": "read"})
    assert texts(await planned(worker, "DELETE", "/v1/identities/ci")) == [("identity ci", "role read", "revoked")]
    registry = worker.registry
    await registry._namespace.client.call("HSET", registry._namespace.keys.readers, "lake", "7 1763475600000")
    plan = await planned(worker, "DELETE", "/v1/readers/lake")
    assert texts(plan) == [("reader lake", "consumed up to version 7", "forgotten")]
    assert (await worker.http.get("/v1/readers")).json()["readers"][0]["reader"] == "lake"
    assert (await worker.http.delete("/v1/readers/lake")).status_code == 200
    assert (await worker.http.get("/v1/readers")).json() == {"readers": []}
    assert (await worker.http.delete("/v1/readers/lake")).status_code == 404


async def test_a_dry_run_needs_the_same_permission(namespace: Any) -> None:
    async with running(namespace, admin_token="t", bind_address="0.0.0.0") as worker:
        answer = await worker.http.delete("/v1/topics/TopicA", params={"dry_run": True})
        assert answer.status_code == 401


async def test_key_value_namespaces_are_listed_with_their_size(worker: Worker) -> None:
    await worker.http.put("/v1/kv/b/k", json={"value": "v"})
    await worker.http.put("/v1/kv/a/k", json={"value": "v"})
    await worker.http.delete("/v1/kv/a/k")
    page = (await worker.http.get("/v1/kv", params={"limit": 1})).json()
    assert page["namespaces"] == [{"namespace": "a", "keys": 0}]
    rest = (await worker.http.get("/v1/kv", params={"cursor": page["next_cursor"]})).json()
    assert rest == {"namespaces": [{"namespace": "b", "keys": 1}], "next_cursor": None}


@pytest.mark.parametrize(
    ("method", "path", "nearest"),
    [
        ("GET", "/v1/topics?clusters=x", "cluster"),
        ("GET", "/v1/routes/TopicA?minversion=1", "min_version"),
        ("GET", "/v1/status?verbose=1", ""),
        ("DELETE", "/v1/topics/TopicA?dryrun=true", "dry_run"),
        ("DELETE", f"{seat()}?dry-run=true", "dry_run"),
        ("PUT", f"{seat()}?replaced=true", "replace"),
        ("PUT", "/v1/snapshot?dry_rn=true", "dry_run"),
        ("GET", "/v1/changes?kinds=refused", "kind"),
        ("GET", "/v1/watch?topics=x", "topic"),
    ],
)
async def test_an_unknown_query_parameter_is_refused(worker: Worker, method: str, path: str, nearest: str) -> None:
    await worker.put_broker()
    body = {"address": "127.0.0.11:10911", "topics": {"TopicZ": {}}} if method == "PUT" else None
    answer = await worker.http.request(method, path, json=body)
    assert (answer.status_code, answer.json()["type"]) == (422, "invalid-input")
    assert (f"the nearest is {nearest}" if nearest else "Allowed") in answer.json()["advice"]
    assert (await worker.http.get("/v1/routes/TopicA")).status_code == 200
    assert (await worker.http.get("/v1/routes/TopicZ")).status_code == 404


async def test_peers_may_append_parameters_when_they_ask_for_addresses(worker: Worker) -> None:
    assert (await worker.http.get("/rocketmq/nsaddr?nofix=1")).status_code == 200
    assert (await worker.http.get("/rocketmq/nsaddr-unit?nofix=1&k=v")).status_code == 200
