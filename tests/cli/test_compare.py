"""`routebook compare`: a table for people, JSON for programs, exit codes for scripts."""

import pytest

from tests.cli.conftest import CommandLine
from tests.client.canned_server import CannedServer, broker_data, one_broker, queue_data, route, serving


def other_queues() -> CannedServer:
    return one_broker(routes={"TopicA": route([broker_data()], [queue_data(perm=4)])})


def test_equal_servers_are_exit_code_0(nowhere: CommandLine) -> None:
    with serving(one_broker()) as here, serving(one_broker()) as there:
        ended = nowhere("compare", here, there)
    assert ended.code == 0
    one = "1 clusters, 1 broker groups, 1 topics"
    assert ended.out == f"Equal: {one} at {here}, {one} at {there}.\n"
    assert ended.err == ""


def test_different_servers_are_a_table_and_exit_code_1(nowhere: CommandLine) -> None:
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


def test_what_was_not_compared_is_said_on_the_side(nowhere: CommandLine) -> None:
    with serving(one_broker()) as here, serving(one_broker(refused={901: (3, "not supported")})) as there:
        ended = nowhere("compare", here, there)
    assert ended.code == 0
    assert ended.err == (f"Not compared: {there} does not tell its members of a group (901) (code 3: not supported).\n")


def test_a_server_that_is_away_is_named_with_exit_code_3(nowhere: CommandLine) -> None:
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
def test_no_address_is_wrong_usage(nowhere: CommandLine, address: str) -> None:
    assert nowhere("compare", address, "127.0.0.1:1").code == 2


def test_without_other_the_service_itself_is_asked_for(nowhere: CommandLine) -> None:
    ended = nowhere("compare", "127.0.0.1:1")
    assert ended.code == 3
    assert "routebook up" in ended.err
