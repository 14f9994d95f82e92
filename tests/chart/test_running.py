"""Runs what the chart's pods run: the program of `helm test` on a real worker, the store's command on real servers."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from routebook.errors import StoreUnavailableError
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from tests.architecture.sources import ROOT
from tests.chart.api_server import ApiServer, next_commands
from tests.chart.objects import settings_of, single, worker_template
from tests.chart.rendering import NEWEST, render
from tests.listeners.authorities import Authority, replace_file
from tests.runtime.running import Running
from tests.support.servers import Server, find_servers

BIN = "/usr/bin:/bin"


def helm_test(
    remoting: str, http: str, mode: str = "permissive", *, deadline_s: int = 120
) -> "subprocess.CompletedProcess[str]":
    (container,) = single(render(), "Pod")["spec"]["containers"]
    program, *_ = container["args"]
    assert container["command"] == ["python", "-c"]
    assert "DEADLINE_S = 120" in program
    program = program.replace("DEADLINE_S = 120", f"DEADLINE_S = {deadline_s}")
    return subprocess.run(
        [sys.executable, "-c", program, remoting, http.rpartition("/")[2], mode],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_helm_test_registers_looks_up_and_unregisters(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    with Running("serve", "--redis-url", store_url, "--namespace", namespace_name, folder=tmp_path) as service:
        remoting = service.remoting.replace("0.0.0.0", "127.0.0.1")
        http = service.http.replace("0.0.0.0", "127.0.0.1")
        service.http = http
        done = helm_test(remoting, http)
        assert (done.returncode, done.stdout.splitlines()) == (
            0,
            ["registered", "found on 12 connections", "found over HTTP", "unregistered"],
        ), done.stdout + done.stderr
        assert service.get("/v1/brokers").json()["brokers"] == []


def test_helm_test_fails_without_a_service() -> None:
    # Nothing listens on port 9.
    done = helm_test("127.0.0.1:9", "127.0.0.1:9", deadline_s=1)
    assert done.returncode == 1
    assert "not registered" in done.stderr


@pytest.mark.parametrize(
    "tls",
    [
        {},
        {"mode": "enforcing", "existingSecret": "a"},
        {"mode": "enforcing", "existingSecret": "a", "clientAuth": "require", "trustSecret": "b"},
    ],
    ids=["plain", "enforcing", "clients-too"],
)
def test_the_commands_of_the_notes_work(
    tls: dict[str, str], store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    """The worker has the settings that the chart sets, and a certificate from a private authority."""
    with ApiServer.running(tmp_path) as server:
        commands = next_commands(server.install(NEWEST, {"tls": tls}).text)
    with Running(*serve_command(tls, store_url, namespace_name, tmp_path), folder=tmp_path) as service:
        for command in commands:
            if command.startswith("helm "):
                done = helm_test(service.remoting, service.http, tls.get("mode", "permissive"))
            elif " exec " in command:
                done = in_the_pod(command.partition(" -- ")[2], service)
            else:
                assert re.search(" (rollout status|get) ", command), "this one should ask the cluster, not a worker"
                continue
            assert done.returncode == 0, (command, done.stdout + done.stderr)


def test_helm_test_fails_where_client_certificates_are_needed(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    """That is why the notes do not suggest it then."""
    tls = {"mode": "enforcing", "existingSecret": "a", "clientAuth": "require", "trustSecret": "b"}
    with Running(*serve_command(tls, store_url, namespace_name, tmp_path), folder=tmp_path) as service:
        done = helm_test(service.remoting, service.http, "enforcing", deadline_s=1)
        assert (done.returncode, "not registered" in done.stderr) == (1, True)


def serve_command(tls: dict[str, str], store_url: str, namespace: str, folder: Path) -> list[str]:
    """The worker's command line, with the Secrets' files in `folder`."""
    authority = Authority(folder)
    issued = authority.issue("names")
    files = {
        "/etc/routebook/tls/tls.key": replace_file(folder / "key.pem", issued.key),
        "/etc/routebook/tls/tls.crt": replace_file(folder / "cert.pem", issued.certificate),
        "/etc/routebook/trust/ca.crt": authority.trust,
    }
    objects = render({"tls": tls})
    (container,) = worker_template(objects).containers
    flags = []
    for name, value in settings_of(objects, container).items():
        if name.startswith("ROUTEBOOK_TLS_"):
            flag = name.removeprefix("ROUTEBOOK_").lower().replace("_", "-")
            flags += [f"--{flag}", str(files.get(value, value))]
    own = ["--redis-url", store_url, "--namespace", namespace, "--bind-address", "127.0.0.1"]
    return ["serve", *own, *flags]


def in_the_pod(command: str, service: Running) -> "subprocess.CompletedProcess[str]":
    """Runs a command as `kubectl exec` would: `healthcheck` and `routebook` are on the image's PATH."""
    host, _, port = service.admin.removeprefix("http://").rpartition(":")
    env = {"ROUTEBOOK_ADMIN_HOST": host, "ROUTEBOOK_ADMIN_PORT": port, "ROUTEBOOK_URL": service.http}
    programs = {"healthcheck": [str(ROOT / "deploy" / "healthcheck.py")], "routebook": ["-m", "routebook"]}
    program, *arguments = command.split()
    return subprocess.run(
        [sys.executable, *programs[program], *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("server", find_servers(), ids=str)
@pytest.mark.parametrize("password", ["", "a-word_of.letters~9"], ids=["open", "password"])
async def test_the_stores_command_and_configuration_work(server: Server, password: str, tmp_path: Path) -> None:
    """Runs the StatefulSet's shell command and configuration with each server found on this machine."""
    objects = render({"store": {"builtin": {"passwordSecret": "word"}}} if password else {})
    socket = tmp_path / "s"
    configuration = tmp_path / "store.conf"
    text = single(objects, "ConfigMap", "-store")["data"]["store.conf"]
    assert "port 6379\n" in text
    text = text.replace("port 6379\n", f"port 0\nunixsocket {socket}\n").replace("dir /data\n", f"dir {tmp_path}\n")
    configuration.write_text(text)
    name = "valkey-server" if "valkey" in str(server.path) else "redis-server"
    (tmp_path / name).symlink_to(server.path)
    (container,) = single(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    line = container["args"][0].replace("/etc/store/store.conf", str(configuration))
    assert container["command"] == ["sh", "-c"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*container["command"], line],
            env={"PATH": f"{tmp_path}:{BIN}", "STORE_PASSWORD": password},
            stdout=log,
            stderr=log,
        )
    try:
        client = StoreClient(
            StoreUrl.parse(f"unix://:{password}@{socket}" if password else f"unix://{socket}"),
            slot_key="rb:{t}:meta",
            timeout_ms=2000,
        )
        await _open(client)
        assert await client.call("CONFIG", "GET", "appendonly") in ([b"appendonly", b"yes"], {b"appendonly": b"yes"})
        await client.call("SET", "rb:{t}:x", "1")
        await client.close()
        # The shell was replaced by the server (exec), so SIGTERM reaches the server.
        process.terminate()
        assert process.wait(10) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert any(file.stat().st_size for file in tmp_path.rglob("appendonly*.aof"))


async def _open(client: StoreClient) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            await client.open()
        except StoreUnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def test_an_image_without_a_server_is_reported(tmp_path: Path) -> None:
    (container,) = single(render(), "StatefulSet")["spec"]["template"]["spec"]["containers"]
    done = subprocess.run(
        ["/bin/sh", *container["command"][1:], *container["args"]],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    assert done.returncode == 2
    assert "no valkey-server and no redis-server" in done.stderr
