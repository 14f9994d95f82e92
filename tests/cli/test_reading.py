"""The commands that show the fleet: brokers with their heartbeats, topics, clusters, and one page about each."""

import secrets
from datetime import datetime

import pytest

from routebook.cli.output import count_and_names, duration_text, fit_columns, parse_when
from tests.cli.conftest import CommandLine
from tests.runtime.running import Running
from tests.support.waiting import wait_until


@pytest.fixture
def group(service: Running) -> str:
    """A master and a slave with the topic `orders-<group>`."""
    name = f"broker-{secrets.token_hex(4)}"
    for broker_id in (0, 1):
        body = {
            "address": f"127.0.0.{11 + broker_id}:10911",
            "timeout_ms": 3_600_000,
            "data_version": {"state_version": 0, "timestamp": 1763475600000, "counter": 3 + broker_id},
            "topics": {f"orders-{name}": {"read_queues": 8, "write_queues": 4}},
        }
        service.put(f"/v1/clusters/{name}-cluster/brokers/{name}/{broker_id}", body).raise_for_status()
    return name


def test_brokers_have_role_health_heartbeat_permission_and_data_version(routebook: CommandLine, group: str) -> None:
    shown = routebook("brokers", "--cluster", f"{group}-cluster").out.splitlines()
    columns = shown[0].split()
    assert columns[:8] == ["CLUSTER", "BROKER", "ID", "ROLE", "ADDRESS", "HEALTH", "HEARTBEAT", "UP"]
    master, slave = shown[1:]
    assert master.split()[1:6] == [group, "0", "master", "127.0.0.11:10911", "ok"]
    assert slave.split()[1:6] == [group, "1", "slave", "127.0.0.12:10911", "ok"]
    assert " s ago" in master
    assert master.split()[-4:] == ["yes", "1", "3", "-"]


def test_brokers_without_a_recent_heartbeat_can_be_selected(routebook: CommandLine, group: str) -> None:
    cluster = ("--cluster", f"{group}-cluster")
    assert routebook("brokers", *cluster, "--silent-for", "1h").out == ""
    assert routebook("brokers", *cluster, "--unhealthy").out == ""
    wait_until(
        lambda: routebook("brokers", *cluster, "--silent-for", "10ms", "-o", "name").out == f"{group}\n",
        "10 ms have passed",
    )


def test_a_broker_without_write_permission_is_shown_and_explained(routebook: CommandLine, group: str) -> None:
    assert routebook("write-permission", group, "off").code == 0
    (row, _) = routebook("brokers", "--cluster", f"{group}-cluster", "--no-headers").out.splitlines()
    assert row.split()[-4] == "no"
    described = routebook("describe", "broker", group)
    assert f"routebook write-permission {group} on" in described.out
    assert "write-permission" in described.out.partition("Last changes")[2]


def test_describe_broker_shows_each_instance_its_changes_and_warnings(routebook: CommandLine, group: str) -> None:
    shown = routebook("describe", "broker", group).out
    assert f"master {group}/0" in shown
    assert f"slave {group}/1" in shown
    assert "data version    0/1763475600000/3" in shown
    assert "broker-registered" in shown
    assert "different data versions" in shown.partition("Warnings")[2]


def test_describe_broker_accepts_an_id_and_an_address(routebook: CommandLine, group: str) -> None:
    one = routebook("describe", "broker", f"{group}/1", "--json").json
    assert [member["address"] for member in one["members"]] == ["127.0.0.12:10911"]
    wrong = routebook("describe", "broker", f"{group}/7")
    assert (wrong.code, wrong.out) == (1, "")
    assert "It has 0, 1." in wrong.err
    assert routebook("describe", "broker", "127.0.0.99:1").code == 1


def test_describe_group_and_topic(routebook: CommandLine, group: str) -> None:
    shown = routebook("describe", "group", group).out
    assert f"1: orders-{group}" in shown
    topic = routebook("describe", "topic", f"orders-{group}")
    assert "127.0.0.11:10911" in topic.out
    assert "Warnings" in topic.out
    as_json = routebook("describe", "topic", f"orders-{group}", "-o", "json").json
    assert as_json["groups"][group]["members"][1]["role"] == "slave"
    assert (len(as_json["last_changes"]), as_json["warnings"]) == (1, [])
    assert routebook("describe", "topic", "unknown").code == 1


def test_a_topic_that_nobody_can_write_has_a_warning(routebook: CommandLine, group: str) -> None:
    assert routebook("write-permission", group, "off").code == 0
    warnings = routebook("describe", "topic", f"orders-{group}").out.partition("Warnings")[2]
    assert "producers cannot send" in warnings


def test_topics_of_one_broker_are_listed(routebook: CommandLine, group: str) -> None:
    assert routebook("topics", "--broker", group, "-o", "name").out == f"orders-{group}\n"
    (row,) = routebook("topics", "--broker", group, "--no-headers").out.splitlines()
    assert row.split() == [f"orders-{group}", "8", "4", "rw", "1:", group]


# Values for people


@pytest.mark.parametrize(
    ("ms", "text"), [(400, "0 s"), (4_000, "4 s"), (119_000, "119 s"), (120_000, "2 min"), (7_200_000, "2 h")]
)
def test_durations_have_one_unit(ms: int, text: str) -> None:
    assert duration_text(ms) == text


def test_a_list_of_names_is_cut_where_the_room_ends() -> None:
    names = [f"broker-{number}" for number in range(12)]
    assert count_and_names(names, None).endswith("broker-11")
    assert count_and_names(names, 30) == "12: broker-0, broker-1, …"
    assert count_and_names(names[:2], 21) == "2: broker-0, broker-1"
    assert count_and_names([], 30) == "0"


def test_optional_columns_are_left_out_until_a_row_fits() -> None:
    header, rows = fit_columns(("broker", "worker", "zone"), [("a" * 10, "w" * 10, "z" * 10)], ("worker", "zone"), 24)
    assert header == ["broker", "zone"]
    assert rows == [["a" * 10, "z" * 10]]


def test_a_time_of_day_is_the_last_one() -> None:
    now = datetime.fromisoformat("2026-11-19T02:00:00+01:00")
    assert parse_when("03:12", now) == "2026-11-18T03:12:00+01:00"
    assert parse_when("01:30:05", now) == "2026-11-19T01:30:05+01:00"
    assert parse_when("2026-11-19 01:30", now) == "2026-11-19T01:30:00+01:00"
    for unchanged in ("42", "1763475600000-42", "10m", "2026-11-19T01:30:00Z", "99:99", None):
        assert parse_when(unchanged, now) == unchanged
