"""Java brokers and clients with TLS, at a port that accepts nothing else and at one that accepts both."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from routebook.cli.certs import certs_command
from routebook.model.identity import Credentials, Identity, Role
from tests.conformance.conftest import Release
from tests.conformance.frames import ask
from tests.conformance.java_processes import Broker
from tests.conformance.java_programs import Messages
from tests.conformance.name_services import NameService, RoutebookFleet
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

TLS = ("-Dtls.enable=true",)


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_brokers_and_clients_with_tls_work_with_an_enforcing_port(
    version: str, release: Release, tmp_path: Path
) -> None:
    """By default, Apache's clients trust any certificate, so that of the test mode as well."""
    libraries = release(version)
    with (
        RoutebookFleet(tmp_path / "names", {"tls.server.mode": "enforcing"}, workers=1) as names,
        Broker(libraries, tmp_path / "broker", names.address, options=TLS),
        Messages(libraries, tmp_path / "peer", names.address, options=TLS) as peer,
    ):
        # The broker's first registration may find no connection yet; the next one comes after 10 s.
        wait_until(lambda: not peer.ask("queues TBW102").startswith("failed"), "the broker is registered")
        peer.assert_exchange("secret", 20)
        assert names.log.unreadable
        assert not names.log.frames
        with pytest.raises((ConnectionError, IndexError)):
            ask(names.address, 106)


@pytest.mark.usefixtures("brokers")
@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_a_port_serves_clients_with_and_without_tls(
    version: str, release: Release, name_service: NameService, tmp_path: Path
) -> None:
    before = len(name_service.log.unreadable)
    # Its connections to brokers use TLS as well, since the client uses it for all connections or for none.
    with Messages(release(version), tmp_path, name_service.address, options=TLS) as peer:
        peer.assert_exchange(f"tls-{version.replace('.', '_')}", 20)
    assert len(name_service.log.unreadable) > before


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_brokers_and_clients_are_identified_by_their_certificates(
    version: str, release: Release, tmp_path: Path
) -> None:
    """4.9 needs this: its brokers cannot be configured to sign."""
    folder = tmp_path / "certificates"
    made = CliRunner().invoke(
        certs_command, ["--out", str(folder), "--name", "127.0.0.1", "--client", "broker", "--client", "client"]
    )
    assert made.exit_code == 0, made.output
    properties = {
        "tls.test.mode.enable": "false",
        "tls.server.mode": "enforcing",
        "tls.server.keyPath": str(folder / "server.key"),
        "tls.server.certPath": str(folder / "server.pem"),
        "tls.server.trustCertPath": str(folder / "ca.pem"),
        "tls.server.authClient": "true",
        "tls.server.need.client.auth": "optional",
    }
    libraries = release(version)
    flags = ("--remoting-access", "signed")
    with RoutebookFleet(tmp_path / "names", properties, flags=flags, workers=1) as names:
        names.add_identity(Identity("brokers", Role.BROKER), Credentials(certificate="broker"))
        names.add_identity(Identity("clients", Role.READ), Credentials(certificate="client"))
        with (
            Broker(libraries, tmp_path / "broker", names.address, options=with_certificate(folder, "broker")),
            Messages(libraries, tmp_path / "peer", names.address, options=with_certificate(folder, "client")) as peer,
            Messages(libraries, tmp_path / "stranger", names.address, options=TLS) as stranger,
        ):
            wait_until(lambda: not peer.ask("queues TBW102").startswith("failed"), "the broker is registered")
            peer.assert_exchange("certified", 20)
            answer = stranger.ask("queues TBW102")
            assert answer.startswith("failed"), answer


def with_certificate(folder: Path, name: str) -> tuple[str, ...]:
    """Java's options for a peer that shows this certificate, and trusts only the authority of the folder."""
    configuration = folder / f"{name}.properties"
    configuration.write_text(
        f"tls.client.authServer=true\ntls.client.trustCertPath={folder}/ca.pem\n"
        f"tls.client.certPath={folder}/{name}.pem\ntls.client.keyPath={folder}/{name}.key\n"
        # A broker is a server as well: clients connect to it.
        f"tls.server.certPath={folder}/server.pem\ntls.server.keyPath={folder}/server.key\n"
    )
    return *TLS, "-Dtls.test.mode.enable=false", f"-Dtls.config.file={configuration}"
