"""The command `routebook simulate`."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from routebook.cli.main import run
from tests.remoting_client.canned_server import CannedServer, serving
from tests.runtime.running import START_SECONDS, Running
from tests.support.simulated import first_address, lines_of, table_of
from tests.support.waiting import until


def test_a_short_run_prints_its_counts(service: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = ["--brokers", "2", "--topics", "3", "--first-address", first_address()]
    clients = ["--clients", "3", "--poll", "100ms"]
    files = ["--log", str(tmp_path / "log"), "--answers", str(tmp_path / "answers"), "--url", service.http]
    length = ["--topics-every", "200ms", "--duration", "2s"]
    assert run(["simulate", "-n", service.remoting, *fleet, *clients, *files, *length, "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts["registrations"].keys() == {"0"}
    assert counts["lookups"]["failures"].keys() <= {"late"}
    assert counts["lookups"]["found"] > 0
    lines = lines_of(tmp_path / "log")
    assert (lines[0]["event"], lines[-1]["event"]) == ("begin", "end")
    assert lines[-1]["counts"] == counts
    assert lines_of(tmp_path / "answers")


async def test_ctrl_c_deregisters_all_brokers(service: Running, tmp_path: Path) -> None:
    path = tmp_path / "log"
    arguments = ["-n", service.remoting, "--brokers", "3", "--first-address", first_address(), "--log", str(path)]
    process = subprocess.Popen([sys.executable, "-m", "routebook", "simulate", *arguments], stdout=subprocess.PIPE)
    try:

        def registered() -> bool:
            if not path.exists():
                return False
            return len([line for line in lines_of(path) if line["event"] == "registered"]) == 3

        await until(registered, timeout_s=START_SECONDS)
        assert len((await table_of(service.remoting))[0]) == 3
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=START_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert "3 accepted" in output.decode()
    assert [line["how"] for line in lines_of(path) if line["event"] == "stopped"] == ["orderly"] * 3

    async def is_empty() -> bool:
        return await table_of(service.remoting) == ({}, {})

    await until(is_empty)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--timeout-ms", "9000"], "brokers register every"),
        (["--duration", "soon"], "is not a duration"),
        (["--brokers", "2", "--clusters", "3"], "clusters is 3"),
        (["--switch-every", "5s"], "--slaves"),
        (["-n", "somewhere"], "--name-servers"),
        (["-n", ";"], "--name-servers"),
        (["--log", "no/such/folder/log"], "cannot be written"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_a_reason(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_any_name_server_the_exit_code_is_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "-n", "127.0.0.1:1;127.0.0.1:2", "--brokers", "1"]) == 3
    assert "127.0.0.1:1 is unavailable" in capsys.readouterr().err


def test_an_address_in_use_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert run(["simulate", "-n", address, "--brokers", "1", "--first-address", address]) == 2
    assert "--first-address" in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["--strict"], 1)])
def test_a_refused_registration_is_exit_code_1_when_strict(
    flags: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(CannedServer(refused={103: (1, "not today")})) as address:
        fleet = ["-n", address, "--brokers", "1", "--first-address", first_address()]
        assert run(["simulate", *fleet, "--duration", "100ms", *flags]) == code
    assert "1 with code 1" in capsys.readouterr().out
