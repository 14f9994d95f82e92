"""`routebook serve`: start, stop, and its errors."""

import json
import os
import re
import signal
import socket
import struct
from pathlib import Path

import httpx
import pytest

from routebook.store.connection.client import StoreClient
from tests.runtime.running import Running, eventually_ended, processes, run
from tests.support.waiting import wait_until


def serving(store_url: str, namespace: str, folder: Path, *more: str) -> Running:
    loopback = ("--bind-address", "127.0.0.1")
    return Running("serve", "--redis-url", store_url, "--namespace", namespace, *loopback, *more, folder=folder)


def test_serve_requires_a_store(tmp_path: Path) -> None:
    ended = run("serve", cwd=tmp_path)
    assert ended.returncode == 2
    assert "redis_url is not set" in ended.stderr
    assert "ROUTEBOOK_REDIS_URL" in ended.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_unreachable_store_is_reported_in_one_sentence(workers: str, tmp_path: Path) -> None:
    flags = ["--remoting-port", "0", "--http-port", "0", "--admin-port", "0", "--workers", workers]
    ended = run("serve", "--redis-url", "redis://:hunter2@127.0.0.1:1", *flags, cwd=tmp_path)
    assert ended.returncode == 3
    (sentence,) = [line for line in ended.stderr.splitlines() if line.startswith("Error:")]
    assert "127.0.0.1:1" in sentence
    assert "Traceback" not in ended.stderr
    assert "hunter2" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--http-port", "99999"), ("http_port", "99999", "0 to 65535")),
        (("--htp-port", "1"), ("--htp-port", "--http-port")),
        (("--history-max-entries", "5000"), ("history-max-entries", "--history-min-entries")),
        (("-c", "nowhere.toml"), ("nowhere.toml", "cannot be read")),
        (("--redis-url", "redis://h:port"), ("redis",)),
    ],
)
def test_wrong_settings_stop_the_start(arguments: tuple[str, ...], words: tuple[str, ...], tmp_path: Path) -> None:
    ended = run("serve", *arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert all(word in ended.stderr for word in words)
    assert "Traceback" not in ended.stderr


def test_a_mistyped_variable_stops_the_start(tmp_path: Path) -> None:
    ended = run("serve", cwd=tmp_path, env={"ROUTEBOOK_HTTP_PROT": "1"})
    assert (ended.returncode, "ROUTEBOOK_HTTP_PORT" in ended.stderr) == (2, True)


def test_a_stop_lets_requests_under_way_finish(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    with serving(store_url, namespace_name, tmp_path, "--min-version-wait-ms", "1500") as service:
        waiting = _Waiting(service)
        assert service.stop() == 0
        assert waiting.answer() == 504
        assert "0 requests were cut off" in service.log


def test_requests_longer_than_the_drain_time_are_cut_off_and_counted(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    long = ("--min-version-wait-ms", "60000", "--request-timeout-ms", "90000", "--drain-ms", "1000")
    with serving(store_url, namespace_name, tmp_path, *long) as service:
        waiting = _Waiting(service)
        assert service.stop() == 0
        assert waiting.answer() in (None, 503)
        assert "1 requests were cut off" in service.log


def test_a_second_signal_forces_the_stop(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    long = ("--min-version-wait-ms", "60000", "--request-timeout-ms", "90000", "--drain-ms", "60000")
    with serving(store_url, namespace_name, tmp_path, *long) as service:
        waiting = _Waiting(service)
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "a second one forces" in service.log, "the first signal is noticed")
        assert service.stop(within=5) == 0
        assert waiting.answer() in (None, 503)
        assert "Forced (second signal: SIGTERM)" in service.log


def test_a_stop_releases_the_lease_so_that_another_worker_leads_at_once(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    with serving(store_url, namespace_name, tmp_path) as first:
        _wait_for_leader(first)
        with serving(store_url, namespace_name, tmp_path) as second:
            assert first.stop() == 0
            own_name = second.get("/v1/status").json()["worker"]
            _wait_for_leader(second, own_name)
            assert [one["worker"] for one in second.get("/v1/status").json()["workers"]] == [own_name]


async def test_a_stop_stores_the_heartbeat_gaps_of_the_last_minute(
    store_url: str, namespace_name: str, tmp_path: Path, client: StoreClient
) -> None:
    with serving(store_url, namespace_name, tmp_path) as service:
        seat = f"{service.http}/v1/clusters/east/brokers/broker-a/0"
        for _ in range(3):
            httpx.put(seat, json={"address": "127.0.0.11:10911", "topics": {"TopicA": {}}}).raise_for_status()
        assert service.stop() == 0
    [(_, fields)] = await client.call("XRANGE", f"rb:{{{namespace_name}}}:pulse", "-", "+")
    [row] = json.loads(fields[1])["rows"]
    assert (row["c"], row["b"], row["i"], row["n"]) == ("east", "broker-a", 0, 2)


def test_readyz_says_what_is_missing_and_metrics_count(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    with serving(store_url, namespace_name, tmp_path) as service:
        assert service.get_admin("/livez").status_code == 200
        assert service.get_admin("/readyz").json()["missing"] == []
        service.register()
        service.register()
        service.get("/v1/routes/TopicA")
        metrics = service.get_admin("/metrics").text
        assert 'routebook_lookups_total{port="http",result="found"} 1.0' in metrics
        assert 'routebook_registrations_total{kind="changed"}' in metrics
        assert re.search(r'routebook_store_calls_total\{result="ok",script="register_broker"\} [12]\.0', metrics)
        assert "routebook_brokers 1.0" in metrics


def test_several_workers_act_as_one_service(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    """All checks use one start, because starting three processes takes long."""
    flags = ("--workers", "2", "-c", str(_file_with_token(tmp_path)))
    with serving(store_url, namespace_name, tmp_path, *flags) as service:
        _check_that_secrets_are_in_no_command_line(service)
        _check_that_the_parent_sums_its_workers(service)
        _check_that_a_dead_worker_is_replaced(service)
        started = service.descendants()
        assert service.stop() == 0
        assert eventually_ended(started)
        assert "Fatal" not in service.log
        assert "did not end cleanly" not in service.log


def test_draining_workers_accept_no_connection(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    """An open port without a worker would cost a peer its whole timeout."""
    with serving(store_url, namespace_name, tmp_path, "--workers", "2", "--drain-ms", "60000") as service:
        host, _, port = service.remoting.rpartition(":")
        with socket.create_connection((host, int(port))) as stays:
            header = b'{"code":206,"version":475}'  # Older than GO_AWAY: it is served to the end.
            question = struct.pack(">iI", 4 + len(header), len(header)) + header
            stays.sendall(question)
            assert stays.recv(4096)
            service.process.send_signal(signal.SIGTERM)
            _wait_until_refused(host, int(port))
            stays.sendall(question)
            assert stays.recv(4096)
            assert service.process.poll() is None
        assert service.process.wait(15) == 0


def _wait_until_refused(host: str, port: int) -> None:
    def is_refused() -> bool:
        try:
            socket.create_connection((host, port)).close()
        except ConnectionError:
            return True
        return False

    wait_until(is_refused, "connections are refused")


def _check_that_the_parent_sums_its_workers(service: Running) -> None:
    assert service.get_admin("/readyz").json()["ready_workers"] == 2
    service.register()
    for _ in range(20):
        service.get("/v1/routes/TopicA", min_version=1)
    metrics = service.get_admin("/metrics").text
    assert 'routebook_lookups_total{port="http",result="found"} 20.0' in metrics
    assert "routebook_workers 2" in metrics
    assert len(service.get("/v1/status").json()["workers"]) == 2


def _check_that_a_dead_worker_is_replaced(service: Running) -> None:
    victim = service.children("worker-process")[0]
    os.kill(victim, signal.SIGKILL)

    def is_replaced() -> bool:
        # The other worker answers meanwhile.
        assert service.get("/v1/status").status_code == 200
        return (
            "routebook_worker_restarts_total 1" in service.get_admin("/metrics").text
            and service.get_admin("/readyz").json()["ready_workers"] == 2
        )

    wait_until(is_replaced, "a new worker is ready")
    assert "ended (signal SIGKILL)" in service.log
    assert victim not in service.children("worker-process")


def _check_that_secrets_are_in_no_command_line(service: Running) -> None:
    assert not [command for _, _, command in processes() if "hunter2" in command]
    refused = httpx.put(f"{service.http}/v1/kv/a/b", json={"value": "c"}, headers={"via": "proxy"}, timeout=10)
    assert refused.status_code == 401
    headers = {"via": "proxy", "authorization": "Bearer hunter2"}
    allowed = httpx.put(f"{service.http}/v1/kv/a/b", json={"value": "c"}, headers=headers, timeout=10)
    assert allowed.status_code == 200


def test_a_signal_to_all_processes_at_once_does_not_force_the_stop(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    """systemd stops a service in this way."""
    with serving(store_url, namespace_name, tmp_path, "--workers", "2", "--min-version-wait-ms", "1500") as service:
        waiting = _Waiting(service)
        for worker in service.children("worker-process"):
            os.kill(worker, signal.SIGTERM)
        assert service.stop() == 0
        assert waiting.answer() == 504
        assert "Forced" not in service.log


def test_kill_9_of_the_parent_leaves_no_worker(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    with serving(store_url, namespace_name, tmp_path, "--workers", "2") as service:
        workers = service.children("worker-process")
        assert len(workers) == 2
        service.kill()
        assert eventually_ended(workers)


def _file_with_token(folder: Path) -> Path:
    file = folder / "routebook.toml"
    file.write_text('admin_token = "hunter2"\n')
    return file


def _wait_for_leader(service: Running, worker: str = "") -> None:
    def leads() -> bool:
        leader = (service.get("/v1/status").json()["leader"] or {}).get("worker")
        return bool(leader) and worker in ("", leader)

    wait_until(leads, f"worker {worker or 'of any name'} leads")


class _Waiting:
    """A long request: it waits for a version that never arrives."""

    def __init__(self, service: Running) -> None:
        host, _, port = service.http.removeprefix("http://").rpartition(":")
        self._connection = socket.create_connection((host, int(port)), timeout=30)
        self._connection.sendall(b"GET /v1/topics?min_version=999999 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # A worker accepts connections in order: when it has answered this one, it is working on the other.
        service.get("/v1/status")

    def answer(self) -> int | None:
        """The status; None when the connection was closed."""
        with self._connection:
            try:
                response = self._connection.recv(64)
            except ConnectionError:
                return None
        return int(response.split()[1]) if response else None


def test_a_request_cut_off_by_a_stop_gets_an_error(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    """Its body never ends. The log gets no traceback for it."""
    with serving(store_url, namespace_name, tmp_path, "--drain-ms", "300") as service:
        host, port = service.http.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(b"PUT /v1/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
            # A worker accepts connections in order: when it answers this one, it has accepted the other.
            service.get("/v1/status")
            assert service.stop() == 0
            answer = client.recv(65536)
        assert b" 503 " in answer.split(b"\r\n", 1)[0]
        assert b'"type": "stopping"' in answer
        assert "Traceback" not in service.log


def test_run_time_settings_are_logged_at_the_next_start(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    with serving(store_url, namespace_name, tmp_path) as service:
        assert service.put("/v1/settings/hold_percent", {"value": "11"}).status_code == 200
        service.stop()
    with serving(store_url, namespace_name, tmp_path) as service:
        assert "Settings changed at run time: hold_percent=11" in service.log


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_broken_key_value_file_stops_the_start(
    store_url: str, namespace_name: str, tmp_path: Path, workers: str
) -> None:
    broken = tmp_path / "kvConfig.json"
    broken.write_text("{")
    flags = ("--namespace", namespace_name, "--workers", workers, "--kv-config-path", str(broken))
    ended = run(
        "serve",
        "--redis-url",
        store_url,
        *flags,
        "--remoting-port",
        "0",
        "--http-port",
        "0",
        "--admin-port",
        "0",
        cwd=tmp_path,
    )
    assert ended.returncode == 2
    assert f"kv_config_path names {broken}" in ended.stderr
    assert "Traceback" not in ended.stderr
