"""The processes of these tests work without Routebook: Apache's name server, broker and tool."""

import signal
from pathlib import Path

import pytest

from tests.conformance.conftest import Release
from tests.conformance.java_processes import ApacheNameServer, Broker, mqadmin
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]


def test_mqadmin_lists_a_broker_of_apaches_name_server(release: Release, tmp_path: Path) -> None:
    libraries = release("5.5.0")
    with (
        ApacheNameServer(libraries, tmp_path / "name-server") as name_server,
        Broker(libraries, tmp_path / "broker", name_server.address) as broker,
    ):

        def is_listed() -> bool:
            return broker.address in mqadmin(libraries, tmp_path / "tool", "clusterList", "-n", name_server.address)

        wait_until(is_listed, "the tool lists the broker")
        assert broker.stop() == 128 + signal.SIGTERM
        assert not broker.running
        assert not is_listed()
