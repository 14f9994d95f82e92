"""An answer that may be old says so on stderr and in JSON."""

from collections.abc import Iterator

import pytest

from routebook.store.embedded import EmbeddedStore
from tests.cli.conftest import CommandLine
from tests.runtime.running import Running
from tests.support.ports import lasting_free_port
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def stale_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that has loaded its table and whose store has stopped. No other server may take the store's port."""
    folder = tmp_path_factory.mktemp("stale")
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        flags = ("--redis-url", store.url, "--bind-address", "127.0.0.1", "--store-timeout-ms", "500")
        with Running("serve", *flags, folder=folder) as service:
            service.register("broker-a", "orders")
            store.stop()
            wait_until(
                lambda: "x-routebook-stale-seconds" in service.get("/v1/topics").headers, "the service is out of touch"
            )
            yield service


@pytest.fixture
def stale(stale_service: Running, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys, stale_service.http)


@pytest.mark.parametrize("command", [("topics",), ("brokers",), ("clusters",), ("route", "orders")])
def test_a_stale_answer_warns_once_on_stderr(stale: CommandLine, command: tuple[str, ...]) -> None:
    shown = stale(*command)
    assert shown.code == 0
    assert shown.err.count("out of touch with the store for") == 1
    assert "Warning" not in shown.out


def test_a_stale_answer_in_json_names_the_reason(stale: CommandLine) -> None:
    route = stale("route", "orders", "--json").json
    assert route["service_warnings"] == ["stale"]
    assert route["stale_seconds"] >= 1
    (topic,) = stale("topics", "--json").json
    assert (topic["topic"], topic["service_warnings"]) == ("orders", ["stale"])


def test_status_names_what_is_wrong_first_and_ends_with_1(stale: CommandLine) -> None:
    shown = stale("status")
    assert shown.code == 1
    assert shown.out.startswith("ERROR: replica: out of touch with the store for ")
    assert shown.err == ""
    as_json = stale("status", "--json")
    assert (as_json.code, as_json.json["warnings"]) == (1, ["stale"])
    assert as_json.json["problems"][0]["level"] == "error"


def test_doctor_names_what_is_wrong_and_a_command(stale: CommandLine) -> None:
    shown = stale("doctor", "--json")
    assert shown.code == 1
    replica = next(one for one in shown.json if one["subject"] == "replica")
    assert (replica["level"], replica["command"]) == ("error", "routebook doctor --redis-url URL")


def test_brokers_are_listed_without_their_heartbeats(stale: CommandLine) -> None:
    row = stale("brokers", "--no-headers").out.split()
    assert row[:6] == ["demo", "broker-a", "0", "master", "127.0.0.11:10911", "unknown"]


def test_a_current_answer_has_no_warning(routebook: CommandLine) -> None:
    shown = routebook("status", "--json")
    assert shown.err == ""
    assert "service_warnings" not in shown.json
