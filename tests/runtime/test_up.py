"""`routebook up`: one command starts everything, and leaves no process behind, however it ends."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.running import Running, descendants, eventually_ended, processes, run


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


def test_the_effective_settings_are_logged_with_secrets_masked(tmp_path: Path) -> None:
    with Running("up", "--admin-token", "hunter2", folder=tmp_path) as service:
        assert "broker_timeout_ms=120000" in service.log
        assert "admin_token=" in service.log
        assert "hunter2" not in service.log


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
