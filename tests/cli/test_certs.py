"""`routebook certs`: the files work for a service with TLS on both ports and for its clients, and are kept safe."""

import re
import shlex
import shutil
import ssl
import stat
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from cryptography import x509

from routebook.cli import certs
from routebook.cli.main import run
from tests.architecture.sources import ROOT
from tests.protocol.plain_frames import json_lookup
from tests.runtime.running import Running
from tests.support.waiting import wait_until

LOOKUP = json_lookup("TopicA")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the walkthrough in docs/tls.md makes."""
    out = tmp_path / "tls"
    assert make(out, "--name", "names.example", "--client", "ops", "--client", "broker-1") == 0
    return out


def make(out: Path, *arguments: str) -> int:
    return run(["certs", "--out", str(out), *arguments])


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def client_context(folder: Path, client: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if client:
        context.load_cert_chain(folder / f"{client}.pem", folder / f"{client}.key")
    return context


def tls_flags(folder: Path) -> list[str]:
    return [
        *("--tls-mode", "enforcing", "--tls-test-mode", "false"),
        *("--tls-key-path", str(folder / "server.key"), "--tls-cert-path", str(folder / "server.pem")),
        *("--tls-auth-client", "true", "--tls-need-client-auth", "require"),
        *("--tls-trust-path", str(folder / "ca.pem")),
    ]


def test_the_files_and_who_may_read_them(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {path.name for path in folder.iterdir()} == {
        f"{name}.{kind}" for name in ("ca", "server", "ops", "broker-1") for kind in ("pem", "key")
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.key")} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    make(tmp_path / "other", "--client", "new")
    assert "new.key" in capsys.readouterr().out


def test_the_commands_of_the_walkthrough_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^routebook (certs .*)$", (ROOT / "docs" / "tls.md").read_text(), re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert run(shlex.split(command)) == 0
    assert (tmp_path / "tls" / "broker-1.key").exists()


def test_what_the_certificates_say(folder: Path) -> None:
    server, client, authority = (read(folder / f"{name}.pem") for name in ("server", "ops", "ca"))
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["names.example", "localhost"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert client.subject.rfc4514_string() == "CN=ops"
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    for one in (server, client):
        one.verify_directly_issued_by(authority)
        assert not one.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert 364 <= (server.not_valid_after_utc - server.not_valid_before_utc).days <= 366


def test_files_are_replaced_with_force_only_and_the_authority_stays(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert make(folder, "--client", "ops") == 2
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert make(folder, "--client", "ops", "--days", "30", "--force") == 0
    for name, content in before.items():
        is_kept = name.startswith(("ca.", "broker-1."))
        assert ((folder / name).read_bytes() == content) is is_kept, name
    read(folder / "server.pem").verify_directly_issued_by(read(folder / "ca.pem"))
    assert (
        read(folder / "server.pem").not_valid_after_utc - read(folder / "server.pem").not_valid_before_utc
    ).days == 30


@pytest.mark.parametrize(
    "arguments",
    [
        ("--client", "ca"), ("--client", "../up"), ("--client", ""), ("--name", "two words"), ("--client", ".hidden"),
        ("--days", "0"), ("--days", "4000"), ("--name", "x" * 65),
    ],
)  # fmt: skip
def test_wrong_usage_writes_nothing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert make(tmp_path / "tls", *arguments) == 2
    assert not (tmp_path / "tls").exists()


def test_half_an_authority_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ca.key").unlink()
    assert make(folder, "--force") == 2
    assert "ca.key" in capsys.readouterr().err


def test_without_the_package_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(certs, "find_spec", lambda _: None)
    assert make(tmp_path / "tls") == 2
    assert "pip install 'routebook[tls]'" in capsys.readouterr().err


def test_a_service_uses_them_on_both_ports_and_loads_renewed_ones(
    folder: Path, store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    start = ("serve", "--redis-url", store_url, "--namespace", namespace_name, "--bind-address", "127.0.0.1")
    with Running(*start, *tls_flags(folder), folder=tmp_path) as service:
        ports = int(service.remoting.rpartition(":")[2]), urlsplit(service.http).port
        with httpx.Client(verify=client_context(folder, "ops"), base_url=service.http, trust_env=False) as client:
            body = {"address": "127.0.0.11:10911", "topics": {"TopicA": {"read_queues": 8, "write_queues": 8}}}
            client.put("/v1/clusters/demo/brokers/broker-a/0", json=body).raise_for_status()
            assert client.get("/v1/routes/TopicA").status_code == 200
            assert b"broker-a" in looked_up(ports[0], client_context(folder, "broker-1"))
            for port in ports:
                assert port is not None
                assert not is_served(port, client_context(folder)), "a client without a certificate"
                assert not is_served(port, None), "a plain client"
                old = client_context(folder, "ops")
                old.maximum_version = ssl.TLSVersion.TLSv1_2
                assert is_served(port, old)
                old.set_ciphers("AES128-SHA256:AES256-SHA:@SECLEVEL=0")
                assert not is_served(port, old), "no forward secrecy"
            serial = read(folder / "server.pem").serial_number
            assert make(folder, "--name", "names.example", "--force") == 0
            for port in ports:
                assert port is not None
                wait_until(lambda port=port: serial_shown(port, folder) != serial, "the renewed certificate")  # type: ignore[misc]
            assert client.get("/v1/routes/TopicA").status_code == 200, "the open connection goes on"
        assert service.stop() == 0


def test_a_client_certificate_is_an_identity_on_the_http_port(
    folder: Path, store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    """The service listens on all addresses, so administrative requests need an identity."""
    start = ("serve", "--redis-url", store_url, "--namespace", namespace_name, "--bind-address", "0.0.0.0")
    with Running(*start, *tls_flags(folder), "--admin-token", "x" * 32, folder=tmp_path) as service:
        url = service.http.replace("0.0.0.0", "127.0.0.1")
        identity = {"name": "operations", "role": "admin", "certificate": "ops"}

        def put_setting(client: httpx.Client, value: int) -> int:
            return client.put("/v1/settings/hold_percent", json={"value": value}).status_code

        with (
            httpx.Client(verify=client_context(folder, "ops"), base_url=url, trust_env=False) as ops,
            httpx.Client(verify=client_context(folder, "broker-1"), base_url=url, trust_env=False) as other,
        ):
            assert put_setting(ops, 40) == 401
            headers = {"authorization": f"Bearer {'x' * 32}"}
            made = other.post("/v1/identities", json=identity, headers=headers)
            assert made.is_success, made.text
            assert put_setting(other, 41) == 401
            assert put_setting(ops, 42) == 200
            (change,) = [
                one
                for one in ops.get("/v1/changes", params={"since": 0}).json()["changes"]
                if one["kind"] == "settings-changed"
            ]
            assert change["actor"] == "operations"


def test_openssl_accepts_the_service(folder: Path, store_url: str, namespace_name: str, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    start = ("serve", "--redis-url", store_url, "--namespace", namespace_name, "--bind-address", "127.0.0.1")
    with Running(*start, *tls_flags(folder), folder=tmp_path) as service:
        port = service.remoting.rpartition(":")[2]
        command = [
            *(openssl, "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", str(folder / "ca.pem")),
            *("-cert", str(folder / "ops.pem"), "-key", str(folder / "ops.key"), "-verify_return_error"),
        ]
        result = subprocess.run(command, input=b"", capture_output=True, timeout=20, check=False)
        assert b"Verify return code: 0 (ok)" in result.stdout, result.stderr


def is_served(port: int, context: ssl.SSLContext | None) -> bool:
    """Whether a request is answered, HTTP or remoting."""
    try:
        return bool(exchanged(port, context, b"GET /rocketmq/nsaddr HTTP/1.1\r\nHost: localhost\r\n\r\n")) or bool(
            exchanged(port, context, LOOKUP)
        )
    except OSError:
        return False


def looked_up(port: int, context: ssl.SSLContext) -> bytes:
    return exchanged(port, context, LOOKUP)


def exchanged(port: int, context: ssl.SSLContext | None, request: bytes) -> bytes:
    import socket  # noqa: PLC0415

    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        line = context.wrap_socket(plain, server_hostname="localhost") if context else plain
        with line:
            line.settimeout(5)
            line.sendall(request)
            return line.recv(65536)


def serial_shown(port: int, folder: Path) -> int:
    import socket  # noqa: PLC0415

    context = client_context(folder, "ops")
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as line,
    ):
        found = line.getpeercert(binary_form=True)
    assert found
    return x509.load_der_x509_certificate(found).serial_number
