"""TLS: the server's certificate is verified against the named authority."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook.errors import StoreUnavailableError
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from tests.support.servers import find_servers

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="no openssl binary to make certificates with")


def make_certificate(folder: Path, host: str = "127.0.0.1") -> None:
    command = [
        *(OPENSSL or "", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"), "-days", "2", "-subj", "/CN=store"),
        *("-addext", f"subjectAltName=IP:{host}"),
    ]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder)
    return folder


@pytest.fixture(scope="module")
def encrypted_port(certificates: Path) -> Iterator[int]:
    options = {
        "tls-cert-file": str(certificates / "cert.pem"),
        "tls-key-file": str(certificates / "key.pem"),
        "tls-ca-cert-file": str(certificates / "cert.pem"),
        "tls-auth-clients": "no",
    }
    for server in reversed(find_servers()):
        with EmbeddedStore(None, port=0) as ports:
            tls_port = ports.port or 0
        store = EmbeddedStore(None, server=server.path, options=options | {"tls-port": str(tls_port)})
        try:
            store.start()
        except StoreUnavailableError:
            continue  # built without TLS
        yield tls_port
        store.stop()
        return
    pytest.skip("no store server here is built with TLS")


async def pings(url: str) -> bool:
    client = StoreClient(StoreUrl.parse(url), slot_key="k", timeout_ms=2000)
    try:
        await client.open()
        return bool(await client.call("PING") == b"PONG")
    finally:
        await client.close()


async def test_a_certificate_of_the_named_authority_is_accepted(encrypted_port: int, certificates: Path) -> None:
    assert await pings(f"rediss://127.0.0.1:{encrypted_port}?ssl_ca_certs={certificates}/cert.pem")


async def test_a_certificate_of_an_unknown_authority_is_refused(encrypted_port: int) -> None:
    with pytest.raises(StoreUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        await pings(f"rediss://127.0.0.1:{encrypted_port}")


async def test_a_certificate_for_another_host_is_refused_unless_allowed(
    encrypted_port: int, certificates: Path
) -> None:
    url = f"rediss://127.0.0.2:{encrypted_port}?ssl_ca_certs={certificates}/cert.pem"
    with pytest.raises(StoreUnavailableError):
        await pings(url)


async def test_verification_can_be_turned_off(encrypted_port: int) -> None:
    assert await pings(f"rediss://127.0.0.1:{encrypted_port}?ssl_cert_reqs=none&ssl_check_hostname=false")


async def test_a_missing_certificate_file_is_reported(encrypted_port: int, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=r"no file .*absent\.pem"):
        await pings(f"rediss://127.0.0.1:{encrypted_port}?ssl_ca_certs={tmp_path}/absent.pem")


async def test_plain_text_to_an_encrypted_port_ends_in_time(encrypted_port: int) -> None:
    with pytest.raises(StoreUnavailableError):
        await pings(f"redis://127.0.0.1:{encrypted_port}")
