"""Java brokers and clients with TLS, at a port that accepts nothing else and at one that accepts both."""

from pathlib import Path

import pytest

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
