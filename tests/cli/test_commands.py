"""Each command against a running service: tables for people, JSON for programs, the contract's exit codes."""

import secrets

import pytest

from tests.cli.conftest import CommandLine
from tests.runtime.running import Running


@pytest.fixture
def broker(service: Running) -> str:
    """A broker with two topics, one of them with the name of a RocketMQ retry topic."""
    name = f"broker-{secrets.token_hex(4)}"
    service.register(name, f"Topic-{name}", f"%RETRY%{name}/x")
    return name


def test_route_shows_brokers_and_queues(routebook: CommandLine, broker: str) -> None:
    shown = routebook("route", f"Topic-{broker}")
    assert shown.code == 0
    header, row = shown.out.splitlines()
    assert header.split() == ["CLUSTER", "BROKER", "ROLE", "ADDRESS", "READ", "WRITE", "PERM"]
    assert row.split() == ["demo", broker, "master", "127.0.0.11:10911", "8", "8", "rw"]
    as_json = routebook("route", f"%RETRY%{broker}/x", "--json")
    assert as_json.json["brokerDatas"][0]["brokerName"] == broker


def test_an_unknown_name_is_exit_code_1(routebook: CommandLine) -> None:
    for arguments in (("route", "nowhere"), ("kv", "get", "N", "k"), ("kv", "delete", "N", "k")):
        ended = routebook(*arguments)
        assert (ended.code, ended.out) == (1, "")
        assert "Error: There is no " in ended.err


@pytest.mark.parametrize("command", ["topics", "brokers", "clusters"])
def test_lists_contain_what_is_registered(command: str, routebook: CommandLine, broker: str) -> None:
    shown = routebook(command)
    assert shown.code == 0
    assert broker in shown.out
    assert routebook(command, "--json").json


def test_lists_can_be_limited_to_one_cluster(routebook: CommandLine, broker: str) -> None:
    assert broker in routebook("brokers", "--cluster", "demo").out
    empty = routebook("brokers", "--cluster", "other")
    assert (empty.out, empty.err) == ("", "(none)\n")


def test_key_values_are_written_read_listed_and_deleted(routebook: CommandLine) -> None:
    assert routebook("kv", "put", "ORDER", "a/ b%", "broker-a:8").code == 0
    assert routebook("kv", "get", "ORDER", "a/ b%").out == "broker-a:8\n"
    assert routebook("kv", "list", "ORDER", "--json").json == {"a/ b%": "broker-a:8"}
    assert "broker-a:8" in routebook("kv", "list", "ORDER").out
    assert routebook("kv", "delete", "ORDER", "a/ b%").code == 0
    assert routebook("kv", "get", "ORDER", "a/ b%").code == 1


def test_write_permission_can_be_removed_and_restored(routebook: CommandLine, broker: str) -> None:
    off = routebook("write-permission", broker, "off", "--json")
    assert off.json["count"] == 2
    assert routebook("route", f"Topic-{broker}").out.splitlines()[1].split()[-1] == "r-"
    assert "is on" in routebook("write-permission", broker, "on").out
    assert routebook("write-permission", broker, "maybe").code == 2


def test_a_deleted_topic_is_removed(routebook: CommandLine, broker: str) -> None:
    assert routebook("delete-topic", f"Topic-{broker}").code == 0
    assert routebook("route", f"Topic-{broker}").code == 1


def test_expiry_is_shown_and_released(routebook: CommandLine) -> None:
    assert routebook("expiry", "status", "--json").json["held"] is False
    assert "held" in routebook("expiry", "status").out
    assert routebook("expiry", "release").code == 0


def test_settings_are_listed_with_their_origin(routebook: CommandLine) -> None:
    rows = {one["key"]: one for one in routebook("settings", "list", "--json").json}
    assert rows["redis_url"]["origin"] == "flag"
    assert rows["lease_ms"] == {"key": "lease_ms", "value": "10000", "origin": "default"}
    assert "broker_timeout_ms" in routebook("settings", "list").out


def test_a_setting_changes_at_run_time(routebook: CommandLine) -> None:
    assert routebook("settings", "set", "hold_minimum", "7").code == 0
    rows = {one["key"]: one for one in routebook("settings", "list", "--json").json}
    assert (rows["hold_minimum"]["value"], rows["hold_minimum"]["origin"]) == ("7", "run time")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hold_percent", "101", "0 to 100"),
        ("hold_procent", "1", "Did you mean hold_percent?"),
        ("http_port", "1", "cannot be changed at run time"),
    ],
)
def test_a_setting_that_cannot_change_at_run_time_is_exit_code_2(
    key: str, value: str, message: str, routebook: CommandLine
) -> None:
    ended = routebook("settings", "set", key, value)
    assert ended.code == 2
    assert message in ended.err


def test_status_shows_version_leader_workers_and_ports(routebook: CommandLine, service: Running) -> None:
    status = routebook("status", "--json").json
    assert status["complete"] is True
    assert status["workers"][0]["about"]["http_port"] == int(service.http.rpartition(":")[2])
    shown = routebook("status").out
    assert status["digest"] in shown
    (worker,) = status["workers"]
    assert shown.splitlines()[-1].split()[0] == worker["worker"]
    assert shown.splitlines()[-1].split()[-1] == str(worker["about"]["http_port"])


def test_top_shows_the_rates_of_each_worker(routebook: CommandLine, service: Running) -> None:
    service.register(f"broker-{secrets.token_hex(4)}")
    header, row = routebook("top", "--interval", "1s").out.splitlines()
    assert header.split()[:4] == ["WORKER", "LOOKUPS/S", "REGISTR./S", "HEARTB./S"]
    assert row.split()[0] == routebook("status", "--json").json["workers"][0]["worker"]
    (worker,) = routebook("top", "--interval", "1s", "--json").json["workers"]
    assert worker["registrations"] >= 1
    assert worker["lookups_per_second"] is not None


def test_digest_prints_one_word_and_compares_services(routebook: CommandLine, service: Running) -> None:
    digest = routebook("digest").out.strip()
    assert digest == routebook("status", "--json").json["digest"]
    port = service.http.rpartition(":")[2]
    same = routebook("digest", f"http://127.0.0.1:{port}", f"http://localhost:{port}")
    assert same.code == 0
    assert same.out.count(digest) == 2


@pytest.mark.parametrize(
    "arguments",
    [("status",), ("route", "x"), ("topics",), ("watch",), ("kv", "get", "a", "b"), ("settings", "list"), ("digest",)],
)
def test_an_unreachable_service_is_exit_code_3(arguments: tuple[str, ...], nowhere: CommandLine) -> None:
    ended = nowhere(*arguments)
    assert (ended.code, ended.out) == (3, "")
    assert "No answer from http://127.0.0.1:1" in ended.err
    assert "routebook up" in ended.err


def test_a_server_that_is_not_a_routebook_is_exit_code_3(service: Running, capsys: pytest.CaptureFixture[str]) -> None:
    ended = CommandLine(capsys, service.admin)("status")
    assert ended.code == 3
    assert "is not a Routebook" in ended.err


def test_a_malformed_url_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert CommandLine(capsys, "localhost:8080")("status").code == 2
