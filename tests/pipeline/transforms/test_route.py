"""1 `route` and 2 `route-diff`. Every case has a topic and brokers of its own; the instant is 100 s."""

import pytest
from pyspark.sql import Row, SparkSession

from routebook_pipeline.history import ERA_SHIFT, History, Instant
from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms.routes import MAX_ENTRIES, route_diff, route_json, routes_at
from tests.pipeline.scenario import Scenario, item, removed_item

S = 1_000
NOW = 100 * S


def make_scenario() -> Scenario:
    scenario = Scenario()
    scenario.registered(
        item("plain", 8, 4, 6, 1), seat="c/plain-b/0", at=1 * S, addr="127.0.0.1:1", zone="z1", acting=True
    )
    scenario.registered(seat="c/plain-b/2", at=1 * S, addr="127.0.0.3:1", zone="z2", acting=True)
    scenario.registered(item("plain", 4, 4), seat="c/plain-a/0", at=1 * S, addr="127.0.0.2:1")
    # A topic that is removed; topics whose group is removed, one of which comes back.
    scenario.registered(item("x", 4, 4), seat="c/x/0", at=2 * S, addr="127.0.0.1:1")
    scenario.queues(removed_item("x"), group="c/x", at=3 * S)
    scenario.registered(item("group", 4, 4), item("returned", 4, 4), seat="c/group/0", at=2 * S, addr="127.0.0.1:1")
    scenario.removed("unregistered", "c/group/0", at=3 * S, group_removed=True)
    scenario.registered(item("returned", 2, 2), seat="c/group/0", at=4 * S, addr="127.0.0.1:2")
    # Permissions: after an item, before an item, and several of them.
    scenario.registered(
        item("cleared", 4, 4, perm=7), item("item-after", 4, 4, perm=7), seat="c/perm/0", at=5 * S, addr="127.0.0.1:1"
    )
    scenario.write_permission("clear-write", "c/perm")
    scenario.queues(item("item-after", 4, 4, perm=7), group="c/perm", at=6 * S)
    scenario.registered(
        item("set-then-cleared", 4, 4, perm=7),
        item("cleared-then-set", 4, 4, perm=7),
        seat="c/perm2/0",
        at=5 * S,
        addr="127.0.0.1:1",
    )
    scenario.write_permission("set", "c/perm2")
    scenario.write_permission("clear-write", "c/perm2")
    scenario.registered(item("cleared-then-set", 4, 4, perm=7), seat="c/perm3/0", at=5 * S, addr="127.0.0.1:1")
    scenario.write_permission("clear-write", "c/perm3")
    scenario.write_permission("set", "c/perm3")
    # An address that moves to another id, and one that is replaced.
    scenario.registered(item("moved", 4, 4), seat="c/moved/1", at=7 * S, addr="127.0.0.1:1")
    scenario.removed("moved", "c/moved/1", at=7 * S)
    scenario.registered(seat="c/moved/0", at=7 * S, addr="127.0.0.1:1")
    scenario.registered(item("replaced", 4, 4), seat="c/replaced/0", at=7 * S, addr="127.0.0.1:1")
    scenario.removed("replaced", "c/replaced/0", at=7 * S)
    scenario.registered(seat="c/replaced/0", at=7 * S, addr="127.0.0.2:1")
    # A registration that is turned down: the group remains, without addresses.
    scenario.registered(item("empty", 4, 4), seat="c/empty/1", at=8 * S, addr="127.0.0.1:1")
    scenario.removed("turned-down", "c/empty/1", at=8 * S)
    scenario.entry(Kind.GROUP_CHANGED, cluster="c", broker="empty", zone="z9", acting=True)
    # Two clusters use one broker name: it is one group, which belongs to the first cluster.
    scenario.registered(item("shared", 4, 4), seat="c/shared/0", at=9 * S, addr="127.0.0.1:1")
    scenario.removed("replaced", "d/shared/0", at=9 * S)
    scenario.registered(item("shared", 1, 1), seat="d/shared/0", at=9 * S, addr="127.0.0.2:1")
    # After the group was removed, it can belong to another cluster.
    scenario.registered(item("renamed", 4, 4), seat="c/renamed/0", at=9 * S, addr="127.0.0.1:1")
    scenario.removed("unregistered", "c/renamed/0", at=9 * S, group_removed=True)
    scenario.registered(item("renamed", 4, 4), seat="d/renamed/0", at=9 * S, addr="127.0.0.1:1")
    # The store lost the group, so the entry that deletes its topic names no cluster.
    scenario.registered(item("lost", 4, 4), seat="c/lost/0", at=9 * S, addr="127.0.0.1:1")
    scenario.entry(Kind.QUEUES_CHANGED, removed_item("lost"), cluster="", broker="lost", cause="delete-topic")
    # Several items of one topic in the same millisecond: the one with the highest version counts.
    scenario.queues(item("same-ms", 1, 1), group="c/plain-a", at=10 * S)
    scenario.queues(item("same-ms", 2, 2), group="c/plain-a", at=10 * S)
    scenario.registered(item("now", 4, 4), seat="c/later/0", at=NOW, addr="127.0.0.1:1")
    scenario.removed("expired", "c/later/0", at=NOW + 1, group_removed=True)
    return scenario


def make_doubtful_scenario() -> Scenario:
    """A complete baseline, then a hole, then a baseline that never ends."""
    scenario = Scenario()
    scenario.registered(item("kept", 4, 4), item("dropped", 4, 4), seat="c/kept/0", at=1 * S, addr="127.0.0.1:1")
    scenario.registered(item("away", 4, 4), seat="c/away/0", at=1 * S, addr="127.0.0.2:1")
    scenario.entry(Kind.BASELINE_BEGIN, at=2 * S)
    scenario.entry(Kind.BASELINE_SEAT, cluster="c", broker="kept", broker_id=0, addr="127.0.0.1:1", acting=False)
    scenario.queues(item("kept", 4, 4), group="c/kept", at=2 * S, kind=Kind.BASELINE_QUEUES)
    scenario.registered(item("meanwhile", 4, 4), seat="c/meanwhile/0", at=2 * S, addr="127.0.0.3:1")
    scenario.entry(Kind.BASELINE_END, at=3 * S)
    scenario.registered(item("after", 4, 4), seat="c/after/0", at=3 * S, addr="127.0.0.4:1")
    scenario.hole(5)
    scenario.entry(Kind.BASELINE_BEGIN, at=4 * S)  # it never ends, so it repairs and removes nothing
    scenario.entry(Kind.KV_PUT, at=5 * S)
    return scenario


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return make_scenario()


@pytest.fixture(scope="module")
def history(small_spark: SparkSession, scenario: Scenario) -> History:
    history = scenario.history(small_spark)
    history.changes.cache()
    return history


@pytest.fixture(scope="module")
def rows(history: History) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in routes_at(history, Instant(ms=NOW)).collect():
        found.setdefault(row.topic, []).append(row)
    return found


@pytest.fixture(scope="module")
def doubts(small_spark: SparkSession) -> dict[str, Row]:
    return {
        row.topic: row for row in routes_at(make_doubtful_scenario().history(small_spark), Instant(ms=NOW)).collect()
    }


def test_a_route_has_the_services_json_format(rows: dict[str, list[Row]]) -> None:
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


def test_removed_topics_have_no_route(rows: dict[str, list[Row]]) -> None:
    assert "x" not in rows
    assert "group" not in rows
    assert "lost" not in rows
    assert route_json([]) is None


def test_a_topic_that_returns_after_its_group_was_removed_has_a_route(rows: dict[str, list[Row]]) -> None:
    (row,) = rows["returned"]
    assert (row.read_queues, row.addresses) == (2, {0: "127.0.0.1:2"})


def test_permissions_apply_in_order_to_the_items_before_them(rows: dict[str, list[Row]]) -> None:
    perms = {(row.topic, row.broker): row.perm for found in rows.values() for row in found}
    assert perms["cleared", "perm"] == 5
    assert perms["item-after", "perm"] == 7
    assert perms["set-then-cleared", "perm2"] == 4
    assert perms["cleared-then-set", "perm3"] == 6


def test_routes_have_the_new_place_of_a_moved_or_replaced_address(rows: dict[str, list[Row]]) -> None:
    assert rows["moved"][0].addresses == {0: "127.0.0.1:1"}
    assert rows["replaced"][0].addresses == {0: "127.0.0.2:1"}


def test_a_group_whose_last_seat_was_given_up_is_listed_without_addresses(rows: dict[str, list[Row]]) -> None:
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


def test_entries_of_the_same_millisecond_are_ordered_by_version(rows: dict[str, list[Row]]) -> None:
    assert rows["same-ms"][0].read_queues == 2


def test_an_instant_includes_the_entries_of_its_millisecond(rows: dict[str, list[Row]]) -> None:
    assert rows["now"][0].addresses == {0: "127.0.0.1:1"}
    assert all(row.certain and row.doubt_from_version is None for found in rows.values() for row in found)


def test_an_instant_can_be_a_version(history: History) -> None:
    (first,) = routes_at(history, Instant(ord=ERA_SHIFT + 1), "plain").collect()
    assert (first.broker, first.zone, first.addresses) == ("plain-b", "z1", {0: "127.0.0.1:1"})
    assert routes_at(history, Instant(ord=ERA_SHIFT), "plain").collect() == []


def test_a_complete_baseline_removes_what_it_does_not_name(doubts: dict[str, Row]) -> None:
    assert set(doubts) == {"kept", "meanwhile", "after"}


def test_after_a_hole_routes_are_uncertain_until_the_next_baseline(doubts: dict[str, Row]) -> None:
    assert {row.addresses == {} for row in doubts.values()} == {True}
    assert {(row.certain, row.doubt_from_version, row.doubt_to_version) for row in doubts.values()} == {(False, 9, 13)}


def test_a_diff_lists_changed_routes_with_their_entries(history: History) -> None:
    found = {
        (row.topic, row.broker): row for row in route_diff(history, Instant(ms=2 * S), Instant(ms=5 * S)).collect()
    }
    differences = {key: row.difference for key, row in found.items()}
    assert {key: difference for key, difference in differences.items() if difference != "added"} == {
        ("x", "x"): "removed",
        ("group", "group"): "removed",
        ("returned", "group"): "changed",
        (None, "group"): "changed",
        (None, "x"): "removed",
    }
    assert {key for key in differences if differences[key] == "added"} == {
        (None, "perm"),
        (None, "perm2"),
        (None, "perm3"),
        ("cleared", "perm"),
        ("item-after", "perm"),
        ("set-then-cleared", "perm2"),
        ("cleared-then-set", "perm2"),
        ("cleared-then-set", "perm3"),
    }
    changed = found["returned", "group"]
    assert (changed.read_queues_before, changed.read_queues_after) == (4, 2)
    assert [entry.kind for entry in changed.entries] == ["broker-registered"]
    assert (changed.addresses_before, changed.addresses_after) == (None, None)
    assert [(entry.kind, entry.cause) for entry in found[None, "group"].entries] == [
        ("broker-removed", "unregistered"),
        ("broker-registered", None),
    ]
    assert [entry.kind for entry in found["x", "x"].entries] == ["queues-changed"]


def test_a_diff_of_one_topic_has_only_its_groups(history: History) -> None:
    found = route_diff(history, Instant(ms=2 * S), Instant(ms=5 * S), "returned").collect()
    assert {(row.topic, row.broker) for row in found} == {("returned", "group"), (None, "group")}


def test_a_diff_lists_the_entries_of_a_group_once_and_only_the_newest(small_spark: SparkSession) -> None:
    """100 registrations of a group with 40 topics: the lists do not grow with either."""
    scenario = Scenario()
    names = [f"topic-{number}" for number in range(40)]
    for at in range(1, 101):
        scenario.registered(*(item(name, read=1 + at % 2) for name in names), at=at, addr=f"127.0.0.1:{at}")
    found = {
        row.topic: row for row in route_diff(scenario.history(small_spark), Instant(ms=1), Instant(ms=100)).collect()
    }
    assert set(found) == {*names, None}
    last = [entry.version for entry in found[None].entries]
    assert (found[None].entry_count, last) == (99, list(range(81, 101)))
    assert {row.addresses_after is None for topic, row in found.items() if topic} == {True}
    assert sum(len(row.entries) for row in found.values()) == MAX_ENTRIES * 41
