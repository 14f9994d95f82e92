"""What one look at a broker's address says."""

import os
import resource
import socket

import pytest

from routebook.registry.lost_connections import Look, dial
from tests.support.broker_hosts import BrokerHosts


async def test_who_listens_accepts_and_who_does_not_refuses() -> None:
    with BrokerHosts() as hosts:
        assert await dial(hosts.accepting(), 5) is Look.ACCEPTED
        assert await dial(hosts.refusing(), 5) is Look.REFUSED


async def test_who_does_not_answer_in_time_is_silent() -> None:
    with BrokerHosts() as hosts:
        assert await dial(hosts.silent(), 0.2) is Look.SILENT


async def test_a_host_that_does_not_exist_is_silent() -> None:
    assert await dial("no-such-host.invalid:10911", 5) in {Look.SILENT, Look.UNDECIDED}


async def test_of_several_addresses_behind_a_name_one_that_accepts_is_enough() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert await dial(f"localhost:{listener.getsockname()[1]}", 5) is Look.ACCEPTED


async def test_an_ipv6_address_is_dialled() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with listener:
        assert await dial(f"[::1]:{listener.getsockname()[1]}", 5) is Look.ACCEPTED


async def test_running_out_of_our_own_means_says_nothing_of_the_broker() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with BrokerHosts() as hosts:
        refusing = hosts.refusing()
        next_descriptor = os.dup(0)
        os.close(next_descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_descriptor, hard))
        try:
            assert await dial(refusing, 5) is Look.UNDECIDED
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
