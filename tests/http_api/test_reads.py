"""Lookups, lists, and the freshness headers of every read."""

import httpx
import pytest

from tests.http_api.conftest import CLUSTER, Worker, seat


async def test_a_route_is_standard_json_of_rocketmq(worker: Worker) -> None:
    await worker.put_broker(topics={"TopicA": {"read_queues": 8, "write_queues": 4, "perm": 6}})
    answer = await worker.http.get("/v1/routes/TopicA")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "127.0.0.11:10911"},
                "brokerName": "broker-a",
                "cluster": CLUSTER,
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {"brokerName": "broker-a", "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 4}
        ],
    }


@pytest.mark.parametrize("topic", ["TopicA", "%RETRY%group", "a/b", "ü", "a b", "missing"])
async def test_the_lookup_endpoint_and_the_path_operation_give_the_same_response(worker: Worker, topic: str) -> None:
    if topic != "missing":
        await worker.put_broker(topics={topic: {}})
    path = httpx.URL(f"http://127.0.0.1:{worker.port}").copy_with(
        raw_path=b"/v1/routes/" + "".join(f"%{byte:02X}" for byte in topic.encode()).encode()
    )
    from_endpoint = await worker.http.get(path)
    from_operation = await worker.http.get(path, params={"min_version": 0})
    assert from_endpoint.status_code == from_operation.status_code == (404 if topic == "missing" else 200)
    assert from_endpoint.content == from_operation.content
    assert dict(from_endpoint.headers) | {"date": ""} == dict(from_operation.headers) | {"date": ""}


async def test_every_read_has_freshness_headers(worker: Worker) -> None:
    version = (await worker.put_broker()).json()["version"]
    for path in (
        "/v1/routes/TopicA",
        "/v1/routes/TopicA?min_version=1",
        "/v1/routes/missing",
        "/v1/topics",
        "/v1/topics/TopicA",
        "/v1/brokers",
        "/v1/brokers/broker-a",
        "/v1/brokers/missing",
        "/v1/clusters",
        f"/v1/clusters/{CLUSTER}",
        "/v1/status",
        "/v1/changes",
        "/v1/settings",
        "/v1/expiry",
        "/v1/kv/missing",
        "/v1/topics?limit=none",
        "/rocketmq/nsaddr",
    ):
        answer = await worker.http.get(path)
        assert answer.headers.get_list("x-routebook-version") == [str(version)], path
        assert answer.headers["x-routebook-history"] == worker.registry.replica.history, path
        assert "x-routebook-stale-seconds" not in answer.headers, path
        assert "x-routebook-warnings" not in answer.headers, path


async def test_reads_warn_while_removals_are_held(worker: Worker) -> None:
    await worker.put_broker()
    worker.registry.store_health.removals_held = True
    for path in ("/v1/routes/TopicA", "/v1/brokers", "/v1/status"):
        assert (await worker.http.get(path)).headers["x-routebook-warnings"] == "removals-held", path
    assert (await worker.http.get("/v1/status")).json()["warnings"] == ["removals-held"]


async def test_an_unknown_topic_is_a_problem_with_advice(worker: Worker) -> None:
    answer = await worker.http.get("/v1/routes/missing")
    problem = answer.json()
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["type"] == "topic-not-found"
    assert "'missing'" in problem["detail"]
    assert problem["advice"]


@pytest.mark.parametrize("path", ["/v1/topics/missing", "/v1/brokers/missing", "/v1/clusters/missing"])
async def test_the_type_of_a_missing_object_names_its_kind(worker: Worker, path: str) -> None:
    answer = await worker.http.get(path)
    noun = path.split("/")[2].removesuffix("s")
    assert (answer.status_code, answer.json()["type"]) == (404, f"{noun}-not-found")


async def test_lists_show_registered_objects(worker: Worker) -> None:
    await worker.put_broker(
        topics={"TopicA": {"perm": 6}, "TopicB": {"perm": 4}},
        timeout_ms=30000,
        zone="az-1",
        ha_address="127.0.0.11:10912",
        filters=["127.0.0.11:30000"],
        data_version={"counter": 3},
    )
    await worker.put_broker(broker_id=1)
    topics = (await worker.http.get("/v1/topics")).json()
    assert [(one["topic"], one["queues"]["broker-a"]["perm"]) for one in topics["topics"]] == [
        ("TopicA", 6),
        ("TopicB", 4),
    ]
    assert topics["next_cursor"] is None
    broker = (await worker.http.get("/v1/brokers/broker-a")).json()
    assert (broker["cluster"], broker["topics"]) == (CLUSTER, 2)
    master, slave = broker["members"]
    assert (master["id"], master["address"], master["timeout_ms"]) == (0, "127.0.0.11:10911", 30000)
    assert (master["ha_address"], master["filters"]) == ("127.0.0.11:10912", ["127.0.0.11:30000"])
    assert master["data_version"] == {"state_version": 0, "timestamp": 0, "counter": 3}
    assert (slave["id"], slave["data_version"]) == (1, None)
    cluster = (await worker.http.get(f"/v1/clusters/{CLUSTER}")).json()
    assert cluster == {"name": CLUSTER, "brokers": ["broker-a"], "members": 2, "topics": 2}


async def test_lists_are_paged_and_filtered_by_cluster(worker: Worker) -> None:
    for number in range(3):
        await worker.put_broker(f"b{number}", address=f"127.0.0.2{number}:10911", topics={f"T{number}": {}})
    other = {"address": "127.0.0.30:10911", "topics": {"Other": {}}}
    await worker.http.put(seat("x", cluster="Other"), json=other)
    first = (await worker.http.get("/v1/topics", params={"cluster": CLUSTER, "limit": 2})).json()
    assert [one["topic"] for one in first["topics"]] == ["T0", "T1"]
    rest = (await worker.http.get("/v1/topics", params={"cluster": CLUSTER, "cursor": first["next_cursor"]})).json()
    assert ([one["topic"] for one in rest["topics"]], rest["next_cursor"]) == (["T2"], None)
    brokers = (await worker.http.get("/v1/brokers", params={"cluster": "Other"})).json()
    assert [one["name"] for one in brokers["brokers"]] == ["x"]
    clusters = (await worker.http.get("/v1/clusters", params={"limit": 1})).json()
    assert [one["name"] for one in clusters["clusters"]] == [CLUSTER]
    assert clusters["next_cursor"]


async def test_the_wait_for_a_version_has_a_limit(worker: Worker) -> None:
    answer = await worker.http.get("/v1/routes/TopicA", params={"min_version": 10**6})
    assert (answer.status_code, answer.json()["type"]) == (504, "not-seen-yet")


async def test_head_is_get_without_the_body(worker: Worker) -> None:
    await worker.put_broker()
    for path in ("/v1/routes/TopicA", "/v1/routes/missing", "/v1/topics", "/v1/status?min_version=1", "/docs"):
        get, head = await worker.http.get(path), await worker.http.head(path)
        assert (head.status_code, head.content) == (get.status_code, b""), path
        assert head.headers["content-type"] == get.headers["content-type"], path


async def test_the_name_server_address_is_the_host_of_the_request(worker: Worker) -> None:
    for path in ("/rocketmq/nsaddr", "/rocketmq/nsaddr-unit1?nofix=1"):
        answer = await worker.http.get(path)
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.text == "127.0.0.1:9876"
    answer = await worker.http.get("/rocketmq/nsaddr", headers={"host": "[::1]:8080"})
    assert answer.text == "[::1]:9876"
    answer = await worker.http.get("/rocketmq/nsaddr", headers={"host": "localhost"})
    assert answer.text == "localhost:9876"


async def test_the_status_has_the_worker_and_the_table(worker: Worker) -> None:
    await worker.put_broker()
    status = (await worker.http.get("/v1/status")).json()
    assert status["worker"] == "test-worker"
    assert (status["version"], status["digest"]) == (
        worker.registry.replica.version,
        worker.registry.replica.table.digest,
    )
    assert (status["complete"], status["stale_seconds"], status["leader"]) == (True, 0.0, None)
    assert status["counts"] == {"clusters": 1, "groups": 1, "brokers": 1, "topics": 1}


async def test_the_history_is_paged_newest_last(worker: Worker) -> None:
    for number in range(3):
        await worker.put_broker(f"b{number}", address=f"127.0.0.2{number}:10911")
    first = (await worker.http.get("/v1/changes", params={"limit": 2})).json()
    assert [change["version"] for change in first["changes"]] == [1, 2]
    entry = first["changes"][0]
    assert entry["kind"] == "broker-registered"
    assert entry["entry"] == f"{entry['ms']}-1"
    assert entry["id"] == 0
    assert (entry["broker"], entry["actor"], entry["worker"]) == ("b0", "anonymous", "test-worker")
    assert (entry["port"], entry["verb"]) == ("http", "register_broker")
    assert entry["source"].startswith("127.0.0.1:")
    rest = (await worker.http.get("/v1/changes", params={"since": first["next_since"]})).json()
    assert [change["version"] for change in rest["changes"]] == [3]
    assert rest["missing"] is None
    end = (await worker.http.get("/v1/changes", params={"since": rest["next_since"]})).json()
    assert (end["changes"], end["next_since"]) == ([], 3)


async def test_a_trimmed_history_reports_the_missing_versions(worker: Worker) -> None:
    for number in range(4):
        await worker.put_broker(f"b{number}", address=f"127.0.0.2{number}:10911")
    client, keys = worker.registry._namespace.client, worker.registry._namespace.keys
    await client.call("XTRIM", keys.changes, "MAXLEN", "=", 1)
    page = (await worker.http.get("/v1/changes", params={"since": 1})).json()
    assert [change["version"] for change in page["changes"]] == [4]
    assert page["missing"] == {"from_version": 2, "to_version": 3}
