"""Export of a namespace as one document, and its import under the rules of the route table."""

import json
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from routebook.store.keys import Keys
from routebook.store.namespace import Namespace
from tests.http_api.conftest import Worker, running, seat

Document = dict[str, Any]


@pytest.fixture
async def other(namespace: Namespace, namespace_name: str) -> AsyncIterator[Worker]:
    """A worker on another, empty namespace of the same store."""
    async with running(Namespace(namespace.client, Keys(f"{namespace_name}-other"), namespace.scripts)) as one:
        yield one


async def export(worker: Worker) -> Document:
    answer = await worker.http.get("/v1/snapshot")
    assert answer.status_code == 200, answer.text
    document: Document = answer.json()
    return document


async def import_document(worker: Worker, document: Document, **query: bool) -> Document:
    answer = await worker.http.put("/v1/snapshot", json=document, params=query)
    assert answer.status_code == 200, answer.text
    done: Document = answer.json()
    return done


def contents(document: Document) -> Document:
    return {key: value for key, value in document.items() if key != "taken"}


async def fleet(worker: Worker) -> None:
    """One of each that a namespace can hold."""
    version = {"state_version": 1, "timestamp": 1_700_000_000_000, "counter": 3}
    mapping = {"bname": "broker-a", "total_queues": 4, "epoch": 7, "current_ids": {"0": 0, "2": 1}}
    await worker.put_broker(
        topics={"TopicA": {"read_queues": 8, "perm": 4}, "Static": {"flags": 3}, "%RETRY%群/组": {}},
        data_version=version,
        ha_address="127.0.0.11:10912",
        zone="az-1",
        mappings={"Static": mapping},
        filters=["127.0.0.11:30000"],
        timeout_ms=30_000,
    )
    await worker.put_broker(broker_id=1, topics={}, data_version=version, zone="az-1")
    standing_in = {
        "acting_master": True,
        "address": "127.0.0.21:10911",
        "topics": {"TopicA": {"perm": 4}, "TopicB": {}},
    }
    await worker.put_broker("broker-b", 2, **standing_in)
    registered = {"address": "127.0.0.31:10911", "topics": {"TopicA": {}}}
    for cluster in ("One", "Two"):
        (await worker.http.put(seat("broker-c", cluster=cluster), json=registered)).raise_for_status()
    by_request = {"queues": {"broker-a": {"read_queues": 3}, "broker-c": {}}}
    (await worker.http.put("/v1/topics/Requested", json=by_request)).raise_for_status()
    for namespace, key, value in (("ORDER_TOPIC_CONFIG", "TopicA", "broker-a:8"), ("N", "a/b 键", "v\n{}")):
        (await worker.http.put(f"/v1/kv/{namespace}/{key}", json={"value": value})).raise_for_status()
    (await worker.http.put("/v1/settings/hold_percent", json={"value": 40})).raise_for_status()


async def test_an_export_contains_everything_and_its_version(worker: Worker) -> None:
    await fleet(worker)
    document = await export(worker)
    status = (await worker.http.get("/v1/status")).json()
    assert document["snapshot"] == 1
    assert {key: document["taken"][key] for key in ("source", "namespace", "history", "version")} == {
        "source": "routebook",
        "namespace": status["namespace"],
        "history": status["history"],
        "version": status["version"],
    }
    assert document["settings"] == {"hold_percent": "40"}
    assert document["key_values"] == {"N": {"a/b 键": "v\n{}"}, "ORDER_TOPIC_CONFIG": {"TopicA": "broker-a:8"}}
    broker_a, broker_b, broker_c = document["groups"]
    assert broker_a["members"][0] == {
        "id": 0,
        "address": "127.0.0.11:10911",
        "cluster": "DefaultCluster",
        "ha_address": "127.0.0.11:10912",
        "timeout_ms": 30_000,
        "data_version": {"state_version": 1, "timestamp": 1_700_000_000_000, "counter": 3},
        "filters": ["127.0.0.11:30000"],
    }
    assert broker_a["topics"]["TopicA"] == {"read_queues": 8, "write_queues": 16, "perm": 4, "flags": 0}
    assert broker_a["topics"]["Requested"]["by_request"] is True
    assert broker_a["mappings"]["Static"]["current_ids"] == {"0": 0, "2": 1}
    assert (broker_b["acting_master"], broker_b["members"][0]["id"]) == (True, 2)
    assert [one["cluster"] for one in broker_c["members"]] == ["One", "Two"]
    assert document["left_out"] == []


async def test_an_exported_fleet_can_be_imported_elsewhere(worker: Worker, other: Worker) -> None:
    await fleet(worker)
    document = await export(worker)
    done = await import_document(other, document)
    assert (done["left_out"], done["turned_down"]) == ([], [])
    assert done["counts"]["broker"] == {"create": 5, "replace": 0, "keep": 0, "same": 0}
    assert contents(await export(other)) == contents(document)


@pytest.mark.parametrize("seed", range(8))
async def test_any_state_of_a_fleet_can_be_imported_elsewhere(worker: Worker, other: Worker, seed: int) -> None:
    await random_fleet(worker, Random(seed))
    document = await export(worker)
    done = await import_document(other, document)
    assert done["turned_down"] == []
    assert importable_contents(await export(other)) == importable_contents(document)
    assert (await import_document(other, document, replace=True))["steps"] == []


async def random_fleet(worker: Worker, rng: Random) -> None:
    """Random registrations, deregistrations and requests of operators."""
    for _ in range(40):
        name, broker_id = f"broker-{rng.choice('abc')}", rng.randrange(3)
        address = f"127.0.{ord(name[-1])}.{10 + broker_id}:10911"
        topics = {f"Topic{number}": {"read_queues": rng.randrange(4)} for number in rng.sample(range(6), 3)}
        match rng.choice(["register"] * 5 + ["deregister", "permission", "topic", "delete"]):
            case "register":
                mapping = {"Topic0": {"bname": name, "epoch": rng.randrange(3)}} if rng.random() < 0.3 else {}
                body = {
                    "address": address,
                    "topics": topics,
                    "data_version": rng.choice([None, {"counter": rng.randrange(3)}]),
                    "acting_master": rng.choice([None, False, True]),
                    "zone": rng.choice([None, "az-1"]),
                    "mappings": mapping,
                    "filters": rng.choice([None, [], ["127.0.0.1:1"]]),
                }
                (await worker.http.put(seat(name, broker_id), json=body)).raise_for_status()
            case "deregister":
                await worker.http.delete(seat(name, broker_id))
            case "permission":
                writable = rng.choice([True, False])
                await worker.http.put(f"/v1/brokers/{name}/write-permission", json={"writable": writable})
            case "topic":
                await worker.http.put(f"/v1/topics/Topic{rng.randrange(9)}", json={"queues": {name: {}}})
            case "delete":
                await worker.http.delete(f"/v1/topics/Topic{rng.randrange(9)}")


def importable_contents(document: Document) -> Document:
    """The contents without traces of removed groups, and without the origin of topics."""
    for group in document["groups"]:
        for queues in group["topics"].values():
            queues.pop("by_request", None)
    return {**contents(document), "left_out": None}


async def test_importing_the_same_snapshot_again_changes_nothing(worker: Worker, other: Worker) -> None:
    await fleet(worker)
    document = await export(worker)
    before = (await import_document(other, document))["version"]
    again = await import_document(other, document, replace=True)
    assert again["version"] == before
    assert again["steps"] == []
    assert {counted["create"] + counted["replace"] + counted["keep"] for counted in again["counts"].values()} == {0}


async def test_a_dry_run_reports_the_same_as_the_import_and_writes_nothing(worker: Worker, other: Worker) -> None:
    await fleet(worker)
    document = await export(worker)
    nothing = contents(await export(other))
    would = await import_document(other, document, dry_run=True)
    assert contents(await export(other)) == nothing
    did = await import_document(other, document)
    assert would["dry_run"]
    assert not did["dry_run"]
    assert (would["counts"], would["steps"]) == (did["counts"], did["steps"])


async def test_values_that_differ_are_kept_and_reported(worker: Worker, other: Worker) -> None:
    await fleet(worker)
    await other.put_broker(topics={"TopicA": {"read_queues": 2}, "Mine": {}}, zone="az-2")
    (await other.http.put("/v1/kv/ORDER_TOPIC_CONFIG/TopicA", json={"value": "broker-a:2"})).raise_for_status()
    mine = await export(other)
    done = await import_document(other, await export(worker))
    kept = {(step["kind"], step["name"]): step["fields"] for step in done["steps"] if step["action"] == "keep"}
    assert kept["key-value", "ORDER_TOPIC_CONFIG/TopicA"] == {"value": ["broker-a:2", "broker-a:8"]}
    assert kept["topic", "TopicA @ broker-a"] == {"read": [2, 8], "perm": [6, 4]}
    assert kept["group", "broker-a"] == {"zone": ["az-2", "az-1"]}
    now = await export(other)
    assert now["groups"][0]["topics"]["TopicA"] == mine["groups"][0]["topics"]["TopicA"]
    assert now["groups"][0]["zone"] == "az-2"
    assert now["groups"][0]["members"][0] == mine["groups"][0]["members"][0]
    assert now["groups"][0]["topics"].keys() == {"TopicA", "Mine", "Static", "%RETRY%群/组", "Requested"}


async def test_with_replace_the_snapshot_wins_and_nothing_is_removed(worker: Worker, other: Worker) -> None:
    await fleet(worker)
    document = await export(worker)
    version = {"state_version": 1, "timestamp": 1_700_000_000_000, "counter": 3}
    await other.put_broker(topics={"TopicA": {"read_queues": 2}, "Mine": {}}, zone="az-2", data_version=version)
    await other.put_broker("broker-b", 2, address="127.0.0.99:10911")
    done = await import_document(other, document, replace=True)
    assert done["turned_down"] == []
    now = await export(other)
    assert now["groups"][0]["topics"].pop("Mine")
    assert contents(now)["groups"] == contents(document)["groups"]
    assert (await import_document(other, document, replace=True))["steps"] == []


async def test_a_seat_with_a_higher_state_version_is_not_taken(worker: Worker, other: Worker) -> None:
    await worker.put_broker(data_version={"state_version": 1})
    await other.put_broker(address="127.0.0.99:10911", data_version={"state_version": 2})
    done = await import_document(other, await export(worker), replace=True)
    assert done["turned_down"] == ["DefaultCluster/broker-a/0"]
    assert (await export(other))["groups"][0]["members"][0]["address"] == "127.0.0.99:10911"


async def test_topics_are_added_to_a_group_whose_instances_are_all_registered(worker: Worker, other: Worker) -> None:
    await worker.put_broker(topics={"TopicA": {}, "New": {"read_queues": 3}})
    await other.put_broker(topics={"TopicA": {}})
    done = await import_document(other, await export(worker))
    assert [(step["kind"], step["name"], step["action"]) for step in done["steps"]] == [
        ("topic", "New @ broker-a", "create")
    ]
    assert (await export(other))["groups"][0]["topics"]["New"]["read_queues"] == 3


async def test_a_group_of_another_cluster_is_left_unchanged(worker: Worker, other: Worker) -> None:
    await worker.put_broker()
    registered = {"address": "127.0.0.31:10911", "topics": {"Mine": {}}}
    (await other.http.put(seat(cluster="Elsewhere"), json=registered)).raise_for_status()
    before = contents(await export(other))
    done = await import_document(other, await export(worker), replace=True)
    assert done["left_out"] == [
        "group broker-a: its cluster is Elsewhere in the route table, DefaultCluster in the snapshot"
    ]
    assert contents(await export(other)) == before


async def test_fields_that_another_name_server_does_not_report_stay_unchanged(worker: Worker) -> None:
    await worker.put_broker(ha_address="127.0.0.11:10912", timeout_ms=30_000, data_version={"counter": 3})
    before = contents(await export(worker))
    member = {"id": 0, "address": "127.0.0.11:10911"}
    topics = {"TopicA": {"read_queues": 1, "write_queues": 1, "perm": 6}}
    group = {"name": "broker-a", "cluster": "DefaultCluster", "members": [member], "topics": topics}
    done = await import_document(worker, {"snapshot": 1, "groups": [group]}, replace=True)
    assert done["counts"]["broker"]["same"] == 1
    after = contents(await export(worker))
    assert after["groups"][0]["members"] == before["groups"][0]["members"]
    assert after["groups"][0]["topics"]["TopicA"]["read_queues"] == 1


async def test_imported_brokers_expire_like_any_other(
    worker: Worker, other: Worker, namespace: Namespace, namespace_name: str
) -> None:
    await fleet(worker)
    await import_document(other, await export(worker))
    deadlines = await namespace.client.call("ZCARD", f"rb:{{{namespace_name}-other}}:deadlines")
    assert deadlines == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"snapshot": 2},
        {"groups": [{"name": "x", "cluster": "C", "members": [{"id": 0, "address": "nonsense"}]}]},
        {"groups": [{"name": "x\u0000", "cluster": "C"}]},
        {"groups": [{"name": "x", "cluster": "C", "topics": {"": {}}}]},
        {"groups": [{"name": "broker-a", "cluster": "C"}, {"name": "broker-a", "cluster": "C"}]},
        {"groups": [{"name": "x", "cluster": "C", "members": [{"id": 0, "address": "127.0.0.1:1"}] * 2}]},
        {"key_values": {"N": {"k": "x" * 65_537}}},
        {"settings": {"hold_percent": "1000"}},
        {"settings": {"no_such_setting": "1"}},
        {"settings": {"http_port": "1"}},
        {"settings": {"admin_token": "********"}},
        {"surprise": 1},
    ],
)
async def test_an_error_anywhere_in_the_snapshot_prevents_every_write(worker: Worker, wrong: Document) -> None:
    right: Document = {"snapshot": 1, "key_values": {"N": {"good": "1"}}, **wrong}
    answer = await worker.http.put("/v1/snapshot", json=right)
    assert answer.status_code == 422, answer.text
    assert (await export(worker))["key_values"] == {}


async def test_export_and_import_are_administrative(worker: Worker) -> None:
    forwarded = {"x-forwarded-for": "203.0.113.1"}
    for answer in (
        await worker.http.get("/v1/snapshot", headers=forwarded),
        await worker.http.put("/v1/snapshot", headers=forwarded, json={"snapshot": 1}),
    ):
        assert answer.status_code == 401
        assert answer.json()["type"] == "token-missing"


async def test_an_export_has_one_version_during_concurrent_writes(worker: Worker) -> None:
    for number in range(20):
        await worker.put_broker(
            f"broker-{number:02}", address=f"127.0.1.{number}:1", topics={f"T{n}": {} for n in range(500)}
        )
    async with worker.http.stream("GET", "/v1/snapshot") as answer:
        parts = answer.aiter_bytes()
        begun = await anext(parts)
        await worker.http.put("/v1/brokers/broker-19/write-permission", json={"writable": False})
        document = json.loads(begun + b"".join([part async for part in parts]))
    perms = {queue["perm"] for group in document["groups"] for queue in group["topics"].values()}
    assert perms == {6}
    assert len(document["groups"]) == 20
