"""TLS of a running service: two worker processes load a new certificate while they run."""

import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.listeners.authorities import Authority, replace_file
from tests.runtime.running import Running, run


def test_workers_load_a_new_certificate_and_keep_all_connections(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    files = {name: tmp_path / f"{name}.pem" for name in ("key", "cert")}
    _write(files, authority, "first")
    flags = ("--tls-test-mode", "false", "--tls-key-path", str(files["key"]), "--tls-cert-path", str(files["cert"]))
    start = ("serve", "--redis-url", store_url, "--namespace", namespace_name, "--bind-address", "127.0.0.1")
    with Running(*start, "--workers", "2", *flags, folder=tmp_path) as service:
        port = urlsplit(service.http).port
        assert port is not None
        assert service.get("/v1/status").status_code == 200
        with httpx.Client(verify=authority.client(), base_url=f"https://localhost:{port}", trust_env=False) as held:
            assert held.get("/v1/status").status_code == 200
            _write(files, authority, "second")
            deadline = time.monotonic() + 15
            # Each worker checks the files by itself; ten connections in a row reach both workers.
            row = 0
            while row < 10:
                assert time.monotonic() < deadline
                row = row + 1 if _name_shown(port, authority) == "second" else 0
            assert held.get("/v1/status").status_code == 200
        asked = run(
            "status", "--url", f"https://localhost:{port}", cwd=tmp_path, env={"SSL_CERT_FILE": str(authority.trust)}
        )
        assert asked.returncode == 0, asked.stderr
        assert run("status", "--url", f"https://localhost:{port}", cwd=tmp_path).returncode != 0
        assert 'routebook_connections{port="http"}' in service.get_admin("/metrics").text
        assert service.stop() == 0


def _write(files: dict[str, Path], authority: Authority, name: str) -> None:
    made = authority.issue(name)
    replace_file(files["key"], made.key)
    replace_file(files["cert"], made.certificate)


def _name_shown(port: int, authority: Authority) -> str:
    with (
        socket.create_connection(("127.0.0.1", port), 10) as sock,
        authority.client().wrap_socket(sock, server_hostname="localhost") as line,
    ):
        found = line.getpeercert()
    assert found
    return str(dict(part[0] for part in found["subject"])["commonName"])  # type: ignore[misc]
