"""`routebook up`: one command starts everything, and leaves no process behind, however it ends."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from routebook.runtime.start import typed_command
from tests.runtime.running import Running, descendants, eventually_ended, processes, run
from tests.support.waiting import wait_until


def test_up_serves_and_keeps_its_data_across_restarts(tmp_path: Path) -> None:
    for start in range(2):
        with Running("up", folder=tmp_path) as service:
            if start == 0:
                service.register()
            assert service.get("/v1/routes/TopicA").json()["queueDatas"][0]["brokerName"] == "broker-a"
            assert "Try next" in service.output
            started = service.descendants()
            assert started
            assert service.stop(signal.SIGINT) == 0
            assert eventually_ended(started)


def test_up_binds_loopback_and_prints_its_ports(tmp_path: Path) -> None:
    with Running("up", folder=tmp_path) as service:
        assert service.http.startswith("http://127.0.0.1:")
        port = int(service.http.rpartition(":")[2])
        assert port != 0
        status = service.get("/v1/status").json()
        assert status["workers"][0]["about"]["http_port"] == port
        settings = {one["key"]: one for one in service.get("/v1/settings").json()["settings"]}
        assert settings["redis_url"]["origin"] == "embedded"


def test_the_start_log_is_short_at_info(tmp_path: Path) -> None:
    with Running("up", "--admin-token", "hunter2", folder=tmp_path) as service:
        first = next(line for line in service.log.splitlines() if "starts" in line)
        assert "set: " in first
        assert "admin_token" in first
        assert len(first) < 300
        assert "broker_timeout_ms" not in service.log
        assert "hunter2" not in service.log


def test_the_effective_settings_are_logged_at_debug_with_secrets_masked(tmp_path: Path) -> None:
    with Running("up", "--admin-token", "hunter2", "--log-level", "debug", folder=tmp_path) as service:
        assert "broker_timeout_ms=120000" in service.log
        assert "admin_token=" in service.log
        assert "hunter2" not in service.log


def test_a_second_worker_survives_a_restart_of_up(tmp_path: Path) -> None:
    """The socket of the embedded store has the same path after each start."""
    folder = tmp_path / "second"
    folder.mkdir()
    with Running("up", folder=tmp_path) as first:
        first.register("broker-a", "TopicA")
        rows = first.get("/v1/settings").json()["settings"]
        url = next(one["value"] for one in rows if one["key"] == "redis_url")
        assert url == f"unix://{tmp_path}/.routebook/run/store.sock"
        assert f"store      {url}" in first.output
        with Running("serve", "--redis-url", url, "--bind-address", "127.0.0.1", folder=folder) as second:
            assert first.stop(signal.SIGINT) == 0
            with Running("up", folder=tmp_path) as again:
                again.register("broker-b", "TopicB")
                wait_until(lambda: second.get("/v1/routes/TopicB").status_code == 200, "the second worker sees it")
                assert again.stop(signal.SIGINT) == 0


def test_up_prints_commands_as_they_are_typed_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / ".venv" / "bin" / "routebook"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    assert typed_command(str(script), tmp_path) == ".venv/bin/routebook"
    assert typed_command(".venv/bin/routebook", tmp_path) == ".venv/bin/routebook"
    assert typed_command(str(script), tmp_path / "elsewhere") == str(script)
    monkeypatch.setenv("PATH", str(script.parent))
    assert typed_command(str(script), tmp_path) == "routebook"
    with Running("up", folder=tmp_path) as service:
        command = f"{sys.executable} -m routebook status --url {service.http}"
        assert command in service.output
        assert run(*command.split()[3:], cwd=tmp_path).returncode == 0


def test_kill_9_of_the_parent_leaves_no_process(tmp_path: Path) -> None:
    with Running("up", folder=tmp_path) as service:
        started = service.descendants()
        assert started
        service.kill()
        assert eventually_ended(started)


def test_kill_9_of_the_starting_process_ends_up_with_end_with_parent(tmp_path: Path) -> None:
    """`make up` starts it in this way: a killed make must not leave its child behind."""
    arguments = ["up", "--end-with-parent", "--remoting-port", "0", "--http-port", "0", "--admin-port", "0"]
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-m', 'routebook', *{arguments!r}])"
    starter = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE)
    assert starter.stdout
    try:
        while b"Ctrl-C" not in starter.stdout.readline():
            assert starter.poll() is None
        started = descendants(starter.pid)
        assert len(started) >= 2
    finally:
        starter.kill()
        starter.wait()
        starter.stdout.close()
    assert eventually_ended(started)


def test_a_second_up_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with Running("up", folder=tmp_path):
        second = run("up", "--remoting-port", "0", "--http-port", "0", "--admin-port", "0", cwd=tmp_path)
    assert second.returncode == 2
    assert "already served by another process" in second.stderr
    assert "--data-dir" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize("setting", ["remoting_port", "http_port", "admin_port"])
def test_a_port_in_use_is_reported_in_one_sentence(setting: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = {"remoting_port": "0", "http_port": "0", "admin_port": "0", setting: str(port)}
        flags = [part for name, text in ports.items() for part in (f"--{name.replace('_', '-')}", text)]
        ended = run("up", *flags, cwd=tmp_path)
    assert ended.returncode == 2
    (sentence,) = [line for line in ended.stderr.splitlines() if line.startswith("Error:")]
    assert f"Port {port} ({setting}) is taken" in sentence
    assert f"--{setting.replace('_', '-')}" in sentence
    assert "Traceback" not in ended.stderr
    with Running("up", folder=tmp_path):  # The store that had started already has ended, and its folder is free.
        pass


def test_a_store_that_ends_by_itself_stops_the_service(tmp_path: Path) -> None:
    with Running("up", folder=tmp_path) as service:
        started = service.descendants()
        keepers = [pid for pid, _, command in processes() if pid in started and "keeper" in command]
        (server,) = [pid for pid, parent, _ in processes() if parent in keepers]
        os.kill(server, signal.SIGKILL)
        assert service.process.wait(15) == 3
        assert "The embedded store ended by itself" in service.log
        assert eventually_ended(started)
