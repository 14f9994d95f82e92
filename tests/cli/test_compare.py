"""`routebook compare`: a table for people, JSON for programs, exit codes for scripts."""

import secrets

import pytest

from tests.cli.conftest import CommandLine
from tests.remoting_client.canned_server import CannedServer, broker_data, one_broker, queue_data, route, serving
from tests.runtime.running import Running


def other_queues() -> CannedServer:
    return one_broker(routes={"TopicA": route([broker_data()], [queue_data(perm=4)])})


def test_equal_servers_are_exit_code_0(nowhere: CommandLine) -> None:
    with serving(one_broker()) as here, serving(one_broker()) as there:
        ended = nowhere("compare", here, there)
    assert ended.code == 0
    one = "1 clusters, 1 broker groups, 1 topics"
    assert ended.out == f"Equal: {one} at {here}, {one} at {there}.\n"
    assert ended.err == ""


def test_different_servers_print_a_table_and_exit_code_1(nowhere: CommandLine) -> None:
    with serving(one_broker()) as here, serving(other_queues()) as there:
        ended = nowhere("compare", here, there, "--settle", "0")
    assert ended.code == 1
    header, row, summary = ended.out.splitlines()
    assert header.split() == ["KIND", "NAME", "WHAT", here, there]
    assert row.split() == ["queues", "TopicA", "@", "broker-a", "perm", "6", "4"]
    assert summary.startswith(f"Different: 0 only at {here}, 0 only at {there}, 1 differ; ")


def test_programs_get_json(nowhere: CommandLine) -> None:
    with serving(one_broker()) as here, serving(other_queues()) as there:
        ended = nowhere("compare", here, there, "--settle", "0", "--json")
    assert ended.code == 1
    assert ended.json["equal"] is False
    assert ended.json["counts"] == {"only here": 0, "only there": 0, "differs": 1}
    assert ended.json["differences"] == [
        {
            "kind": "queues",
            "name": "TopicA @ broker-a",
            "verdict": "differs",
            "field": "perm",
            "here": 6,
            "there": 4,
        }
    ]


def test_what_was_not_compared_is_reported_on_stderr(nowhere: CommandLine) -> None:
    with serving(one_broker()) as here, serving(one_broker(refused={901: (3, "not supported")})) as there:
        ended = nowhere("compare", here, there)
    assert ended.code == 0
    assert ended.err == (f"Not compared: {there} declined the members of a group (901) (code 3: not supported).\n")


def test_an_unreachable_server_is_named_with_exit_code_3(nowhere: CommandLine) -> None:
    with serving(one_broker()) as here:
        ended = nowhere("compare", here, "127.0.0.1:1")
        assert (ended.code, ended.out) == (3, "")
        assert "127.0.0.1:1 is unavailable" in ended.err
        assert here not in ended.err
    both = nowhere("compare", "127.0.0.1:1", "127.0.0.1:2")
    assert both.code == 3
    assert "127.0.0.1:1 is" in both.err
    assert "127.0.0.1:2 is" in both.err


@pytest.mark.parametrize("address", ["nonsense", "host:0", "http://127.0.0.1:9876"])
def test_a_malformed_address_is_wrong_usage(nowhere: CommandLine, address: str) -> None:
    assert nowhere("compare", address, "127.0.0.1:1").code == 2


def test_without_other_the_service_itself_is_compared(nowhere: CommandLine) -> None:
    ended = nowhere("compare", "127.0.0.1:1")
    assert ended.code == 3
    assert "routebook up" in ended.err


def test_the_service_equals_itself_over_its_remoting_port(routebook: CommandLine, service: Running) -> None:
    whole_fleet(service)
    address = f"127.0.0.1:{service.remoting.rpartition(':')[2]}"
    ended = routebook("compare", address, "--settings", "--kv", "N")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("Equal: ")


def test_another_server_is_compared_with_the_service(routebook: CommandLine, service: Running) -> None:
    name = whole_fleet(service)
    with serving(one_broker()) as foreign:
        ended = routebook("compare", foreign, "--settle", "0", "--json")
    assert ended.code == 1
    things = {(one["kind"], one["name"]): one["verdict"] for one in ended.json["differences"]}
    assert things["broker", name] == "only there"
    assert ("queues", f"Topic-{name} @ {name}") not in things


def whole_fleet(service: Running) -> str:
    """Registers a group with every part that a route can have, and returns its name."""
    name = f"broker-{secrets.token_hex(4)}"
    seat = f"/v1/clusters/demo/brokers/{name}"
    mapping = {"bname": name, "total_queues": 4, "epoch": 7, "current_ids": {"0": 0, "2": 1}}
    master = {
        "address": "127.0.0.41:10911",
        "zone": "az-1",
        "acting_master": True,
        "topics": {f"Topic-{name}": {"flags": 3}, "Static": {}, f"%RETRY%群-{name}": {"perm": 4}},
        "mappings": {"Static": mapping},
        "filters": ["127.0.0.41:30000"],
    }
    service.put(f"{seat}/0", master).raise_for_status()
    slave = {"address": "127.0.0.42:10911", "zone": "az-1", "acting_master": True}
    service.put(f"{seat}/1", slave).raise_for_status()
    service.put(f"/v1/kv/ORDER_TOPIC_CONFIG/Topic-{name}", {"value": f"{name}:4"}).raise_for_status()
    service.put("/v1/kv/N/k", {"value": "v"}).raise_for_status()
    return name


def test_connections_may_be_encrypted(routebook: CommandLine, service: Running) -> None:
    address = f"127.0.0.1:{service.remoting.rpartition(':')[2]}"
    assert routebook("compare", address, "--tls").code == 0
    with serving(one_broker()) as plain:
        ended = routebook("compare", plain, "--tls")
    assert ended.code == 3
    assert f"{plain} is unavailable" in ended.err
