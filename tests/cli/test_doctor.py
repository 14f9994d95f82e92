"""`routebook doctor`: with and without a store, with and without a service."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from routebook.cli.main import run
from tests.runtime.running import Running


@pytest.fixture(autouse=True)
def no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service of this machine does not run, unless the test names another one."""
    monkeypatch.setenv("ROUTEBOOK_URL", "http://127.0.0.1:1")


def looked_at(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run(["doctor", "--json", *arguments])
    return code, {one["subject"]: one for one in json.loads(capsys.readouterr().out)}


def test_without_a_service_the_machine_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = looked_at(capsys)
    assert code == 0
    assert found["settings"]["level"] == "ok"
    assert "Python" in found["versions"]["message"]
    assert "descriptors" in found
    assert "routebook up" in found["store"]["message"]
    assert found["service"]["level"] == "warning"
    assert found["service"]["advice"]


def test_the_store_and_its_clock_are_checked(store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = looked_at(capsys, "--redis-url", store_url)
    assert code == 0
    assert found["clock"]["level"] == "ok"
    assert "reached" in found["store"]["message"]


def test_an_unreachable_store_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = looked_at(capsys, "--redis-url", "redis://127.0.0.1:1")
    assert code == 3
    assert found["store"]["level"] == "error"
    assert found["store"]["advice"]


def test_wrong_settings_are_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "routebook.toml"
    file.write_text("http_prot = 1\n")
    code, found = looked_at(capsys, "-c", str(file))
    assert code == 2
    assert "Did you mean http_port?" in found["settings"]["advice"]


@pytest.mark.parametrize("port", ["remoting_port", "admin_port"])
def test_a_port_in_use_is_reported_with_advice(
    port: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv(f"ROUTEBOOK_{port.upper()}", str(taken.getsockname()[1]))
        _, found = looked_at(capsys)
    assert found[port]["level"] == "warning"
    assert f"--{port.replace('_', '-')}" in found[port]["advice"]


def test_ports_of_a_running_service_are_recognized(
    service: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, address in (("REMOTING", service.remoting), ("HTTP", service.http), ("ADMIN", service.admin)):
        monkeypatch.setenv(f"ROUTEBOOK_{name}_PORT", address.rpartition(":")[2].partition("/")[0])
    monkeypatch.setenv("ROUTEBOOK_URL", service.http)
    _, found = looked_at(capsys)
    for port in ("remoting_port", "http_port", "admin_port"):
        assert (found[port]["level"], "a Routebook listens" in found[port]["message"]) == ("ok", True)


def test_with_a_url_that_service_is_checked_and_not_this_machine(
    service: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    service.register("broker-a", "orders")
    code, found = looked_at(capsys, "--url", service.http)
    assert code == 0
    assert "answers at" in found["service"]["message"]
    assert set(found) <= {"service", "brokers", "leader"}


def test_each_address_of_a_service_is_checked(service: Running, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "--json", "--url", f"http://127.0.0.1:1,{service.http}"])
    levels = [one["level"] for one in json.loads(capsys.readouterr().out) if one["subject"] == "service"]
    assert (code, levels) == (1, ["error", "ok"])


def test_a_service_that_does_not_answer_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = looked_at(capsys, "--url", "http://127.0.0.1:1", "--timeout", "1s")
    assert code == 3
    assert list(found) == ["service"]
    assert found["service"]["command"] == "curl http://127.0.0.1:1/v1/status"


def test_the_text_output_contains_advice_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor"])
    assert "-> Start the service, or name another with --url. Command: routebook up" in capsys.readouterr().out


def test_the_acl_rule_of_the_store_is_printed_without_a_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--acl", "--redis-url", "redis://names:hidden@127.0.0.1:1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("ACL SETUSER names on resetkeys ~rb:{default}:* resetchannels nocommands +")
    assert "+evalsha" in printed
    assert "hidden" not in printed
