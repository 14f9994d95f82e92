"""1 What did the service answer? A case is a topic of its own on brokers of its own; the instant is 100 s."""

import pytest
from pyspark.sql import Row, SparkSession

from routebook_pipeline.history import ERA_SHIFT, History, Instant
from routebook_pipeline.transforms.routes import route_diff, route_json, routes_at
from tests.pipeline.transforms.stories import Story, gone, put

S = 1_000
NOW = 100 * S


def tell() -> Story:
    story = Story()
    story.up("c/plain-b/0", 1 * S, "127.0.0.1:1", put("plain", 8, 4, 6, 1), zone="z1", acting=True)
    story.up("c/plain-b/2", 1 * S, "127.0.0.3:1", zone="z2", acting=True)
    story.up("c/plain-a/0", 1 * S, "127.0.0.2:1", put("plain"))
    # Taken away by x; by a removed group, and given again afterwards.
    story.up("c/x/0", 2 * S, "127.0.0.1:1", put("x"))
    story.queues("c/x", 3 * S, gone("x"))
    story.up("c/group/0", 2 * S, "127.0.0.1:1", put("group"), put("again"))
    story.down("c/group/0", 3 * S, "unregistered", group_removed=True)
    story.up("c/group/0", 4 * S, "127.0.0.1:2", put("again", 2, 2))
    # Permissions: behind an item, before an item, one after the other.
    story.up("c/perm/0", 5 * S, "127.0.0.1:1", put("cleared", perm=7), put("item-after", perm=7))
    story.permission("c/perm", writable=False)
    story.queues("c/perm", 6 * S, put("item-after", perm=7))
    story.up("c/perm2/0", 5 * S, "127.0.0.1:1", put("set-then-cleared", perm=7), put("cleared-then-set", perm=7))
    story.permission("c/perm2", writable=True)
    story.permission("c/perm2", writable=False)
    story.up("c/perm3/0", 5 * S, "127.0.0.1:1", put("cleared-then-set", perm=7))
    story.permission("c/perm3", writable=False)
    story.permission("c/perm3", writable=True)
    # An address that moved from one id to another, and one that was replaced.
    story.up("c/moved/1", 7 * S, "127.0.0.1:1", put("moved"))
    story.down("c/moved/1", 7 * S, "moved")
    story.up("c/moved/0", 7 * S, "127.0.0.1:1")
    story.up("c/replaced/0", 7 * S, "127.0.0.1:1", put("replaced"))
    story.down("c/replaced/0", 7 * S, "replaced")
    story.up("c/replaced/0", 7 * S, "127.0.0.2:1")
    # Turned down at its new id, so it has none: the group stays, without addresses.
    story.up("c/empty/1", 8 * S, "127.0.0.1:1", put("empty"))
    story.down("c/empty/1", 8 * S, "turned-down")
    story.tell("group-changed", cluster="c", broker="empty", zone="z9", acting=True)
    # One name, two clusters: the service has one group, of the cluster that came first.
    story.up("c/shared/0", 9 * S, "127.0.0.1:1", put("shared"))
    story.down("d/shared/0", 9 * S, "replaced")
    story.up("d/shared/0", 9 * S, "127.0.0.2:1", put("shared", 1, 1))
    # … and after it was removed it may belong to another.
    story.up("c/renamed/0", 9 * S, "127.0.0.1:1", put("renamed"))
    story.down("c/renamed/0", 9 * S, "unregistered", group_removed=True)
    story.up("d/renamed/0", 9 * S, "127.0.0.1:1", put("renamed"))
    # The store lost the group: the entry that deletes its topic knows no cluster.
    story.up("c/lost/0", 9 * S, "127.0.0.1:1", put("lost"))
    story.tell("queues-changed", None, [gone("lost")], broker="lost", cause="delete-topic")
    # Several items of one topic at the same time: the last by version stands.
    story.queues("c/plain-a", 10 * S, put("same-ms", 1, 1))
    story.queues("c/plain-a", 10 * S, put("same-ms", 2, 2))
    story.up("c/later/0", NOW, "127.0.0.1:1", put("now"))
    story.down("c/later/0", NOW + 1, group_removed=True)
    return story


def tell_doubts() -> Story:
    """Two namespaces' worth of baselines and holes, one after the other."""
    story = Story()
    story.up("c/kept/0", 1 * S, "127.0.0.1:1", put("kept"), put("dropped"))
    story.up("c/away/0", 1 * S, "127.0.0.2:1", put("away"))
    story.tell("baseline-begin", 2 * S)
    story.tell("baseline-seat", cluster="c", broker="kept", broker_id=0, addr="127.0.0.1:1", acting=False)
    story.queues("c/kept", 2 * S, put("kept"), kind="baseline-queues")
    story.up("c/meanwhile/0", 2 * S, "127.0.0.3:1", put("meanwhile"))
    story.tell("baseline-end", 3 * S)
    story.up("c/after/0", 3 * S, "127.0.0.4:1", put("after"))
    story.hole(5)
    story.tell("baseline-begin", 4 * S)  # never ended: repairs nothing, removes nothing
    story.tell("kv-put", 5 * S)
    return story


@pytest.fixture(scope="module")
def story() -> Story:
    return tell()


@pytest.fixture(scope="module")
def history(plainly: SparkSession, story: Story) -> History:
    history = story.history(plainly)
    history.changes.cache()
    return history


@pytest.fixture(scope="module")
def rows(history: History) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in routes_at(history, Instant(ms=NOW)).collect():
        found.setdefault(row.topic, []).append(row)
    return found


@pytest.fixture(scope="module")
def doubts(plainly: SparkSession) -> dict[str, Row]:
    return {row.topic: row for row in routes_at(tell_doubts().history(plainly), Instant(ms=NOW)).collect()}


def test_a_route_as_the_service_writes_it(rows: dict[str, list[Row]]) -> None:
    assert route_json(rows["plain"]) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "127.0.0.2:1"},
                "brokerName": "plain-a",
                "cluster": "c",
                "enableActingMaster": False,
            },
            {
                "brokerAddrs": {"0": "127.0.0.1:1", "2": "127.0.0.3:1"},
                "brokerName": "plain-b",
                "cluster": "c",
                "enableActingMaster": True,
                "zoneName": "z2",
            },
        ],
        "queueDatas": [
            {"brokerName": "plain-a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4},
            {"brokerName": "plain-b", "perm": 6, "readQueueNums": 8, "topicSysFlag": 1, "writeQueueNums": 4},
        ],
    }


def test_what_is_not_there_has_no_route(rows: dict[str, list[Row]]) -> None:
    assert "x" not in rows
    assert "group" not in rows
    assert "lost" not in rows
    assert route_json([]) is None


def test_what_came_back_after_its_group_was_removed_is_there(rows: dict[str, list[Row]]) -> None:
    (again,) = rows["again"]
    assert (again.read_queues, again.addresses) == (2, {0: "127.0.0.1:2"})


def test_permissions_apply_in_their_order_to_items_before_them(rows: dict[str, list[Row]]) -> None:
    perms = {(row.topic, row.broker): row.perm for found in rows.values() for row in found}
    assert perms["cleared", "perm"] == 5
    assert perms["item-after", "perm"] == 7
    assert perms["set-then-cleared", "perm2"] == 4
    assert perms["cleared-then-set", "perm3"] == 6


def test_an_address_that_moved_or_was_replaced(rows: dict[str, list[Row]]) -> None:
    assert rows["moved"][0].addresses == {0: "127.0.0.1:1"}
    assert rows["replaced"][0].addresses == {0: "127.0.0.2:1"}


def test_a_group_whose_last_seat_was_given_up_is_there_without_addresses(rows: dict[str, list[Row]]) -> None:
    (empty,) = rows["empty"]
    assert (empty.addresses, empty.zone, empty.acting) == ({}, "z9", True)
    answer = route_json([empty])
    assert answer is not None
    assert answer["brokerDatas"][0]["brokerAddrs"] == {}


def test_a_name_shared_by_two_clusters_is_one_group(rows: dict[str, list[Row]]) -> None:
    (shared,) = rows["shared"]
    assert (shared.cluster, shared.read_queues, shared.addresses) == ("c", 1, {0: "127.0.0.2:1"})
    (renamed,) = rows["renamed"]
    assert renamed.cluster == "d"


def test_equal_times_are_told_apart_by_version(rows: dict[str, list[Row]]) -> None:
    assert rows["same-ms"][0].read_queues == 2


def test_an_instant_sees_what_happened_in_it(rows: dict[str, list[Row]]) -> None:
    assert rows["now"][0].addresses == {0: "127.0.0.1:1"}
    assert all(row.certain and row.doubt_from_version is None for found in rows.values() for row in found)


def test_a_version_is_an_instant_too(history: History) -> None:
    (first,) = routes_at(history, Instant(ord=ERA_SHIFT + 1), "plain").collect()
    assert (first.broker, first.zone, first.addresses) == ("plain-b", "z1", {0: "127.0.0.1:1"})
    assert routes_at(history, Instant(ord=ERA_SHIFT), "plain").collect() == []


def test_what_a_baseline_did_not_name_is_gone(doubts: dict[str, Row]) -> None:
    assert set(doubts) == {"kept", "meanwhile", "after"}


def test_behind_a_hole_nothing_is_certain_until_the_next_baseline(doubts: dict[str, Row]) -> None:
    assert {row.addresses == {} for row in doubts.values()} == {True}
    assert {(row.certain, row.doubt_from_version, row.doubt_to_version) for row in doubts.values()} == {(False, 9, 13)}


def test_what_became_of_the_routes_and_why(history: History) -> None:
    found = {
        (row.topic, row.broker): row for row in route_diff(history, Instant(ms=2 * S), Instant(ms=5 * S)).collect()
    }
    became = {key: row.difference for key, row in found.items()}
    assert {key: difference for key, difference in became.items() if difference != "added"} == {
        ("x", "x"): "removed",
        ("group", "group"): "removed",
        ("again", "group"): "changed",
    }
    assert {key for key in became if became[key] == "added"} == {
        ("cleared", "perm"),
        ("item-after", "perm"),
        ("set-then-cleared", "perm2"),
        ("cleared-then-set", "perm2"),
        ("cleared-then-set", "perm3"),
    }
    changed = found["again", "group"]
    assert (changed.read_queues_before, changed.read_queues_after) == (4, 2)
    assert [(entry.kind, entry.cause) for entry in changed.entries] == [
        ("broker-removed", "unregistered"),
        ("broker-registered", None),
    ]
    assert [entry.kind for entry in found["x", "x"].entries] == ["queues-changed"]
