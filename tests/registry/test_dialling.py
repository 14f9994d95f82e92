"""The result of dialling a broker's address once."""

import asyncio
import os
import resource
import socket
import time
from ipaddress import ip_network
from typing import Any

import pytest

from routebook.registry import removals
from routebook.registry.removals import Dialler, DialResult, are_near, parse_address
from routebook.store.sessions import LostConnection
from tests.support.broker_hosts import BrokerHosts


async def dial(
    address: str, timeout_s: float, *, networks: str = "127.0.0.0/8 ::1/128", source: str = "", established: bool = True
) -> DialResult:
    loss = LostConnection(f"east/{address}", "broker-a", 0, "1" * 16, 1, source=source, established=established)
    allowed = [ip_network(network) for network in networks.split()]
    return await Dialler(allowed).dial(loss, time.monotonic() + timeout_s)


async def test_a_listening_address_accepts_and_one_without_listener_refuses() -> None:
    with BrokerHosts() as hosts:
        assert await dial(hosts.accepting(), 5) is DialResult.ACCEPTED
        assert await dial(hosts.refusing(), 5) is DialResult.REFUSED


async def test_an_address_that_does_not_answer_in_time_is_silent() -> None:
    with BrokerHosts() as hosts:
        assert await dial(hosts.silent(), 0.2) is DialResult.SILENT


async def test_a_host_that_does_not_exist_is_silent() -> None:
    assert await dial("no-such-host.invalid:10911", 5) in {DialResult.SILENT, DialResult.UNDECIDED}


async def test_one_accepting_address_of_a_name_is_enough() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert await dial(f"localhost:{listener.getsockname()[1]}", 5) is DialResult.ACCEPTED


async def test_an_ipv6_address_is_dialled() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with listener:
        assert await dial(f"[::1]:{listener.getsockname()[1]}", 5) is DialResult.ACCEPTED


async def test_a_worker_without_free_file_descriptors_decides_nothing_about_the_broker() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with BrokerHosts() as hosts:
        refusing = hosts.refusing()
        next_descriptor = os.dup(0)
        os.close(next_descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_descriptor, hard))
        try:
            assert await dial(refusing, 5) is DialResult.UNDECIDED
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_without_networks_only_addresses_near_the_connection_are_dialled() -> None:
    with BrokerHosts() as hosts:
        refusing = hosts.refusing()
        for source, expected in {
            "127.0.0.1:40000": DialResult.REFUSED,
            "[::1]:40000": DialResult.REFUSED,
            "192.0.2.1:40000": DialResult.NOT_ALLOWED,
            "": DialResult.NOT_ALLOWED,
        }.items():
            assert await dial(refusing, 5, networks="", source=source) is expected, source


@pytest.mark.parametrize(
    ("target", "source", "is_near"),
    [
        ("192.0.2.200", "192.0.2.1", True),
        ("192.0.3.1", "192.0.2.1", False),
        ("2001:db8::9", "2001:db8::1", True),
        ("2001:db8:0:1::9", "2001:db8::1", False),
        ("::ffff:192.0.2.9", "192.0.2.1", True),
        ("127.0.0.1", "192.0.2.1", False),
        ("192.0.2.1", "127.0.0.1", False),
    ],
)
def test_near_is_the_same_network(target: str, source: str, is_near: bool) -> None:
    first, second = parse_address(target), parse_address(source)
    assert first is not None
    assert second is not None
    assert are_near(first, second) is is_near


async def test_an_address_outside_the_networks_is_not_dialled() -> None:
    with BrokerHosts() as hosts:
        networks = "10.0.0.0/8"
        assert await dial(hosts.accepting(), 5, networks=networks, source="127.0.0.1:1") is DialResult.NOT_ALLOWED


async def test_a_new_instance_is_dialled_only_where_its_connection_came_from() -> None:
    """Not on loopback either, since a relay on this host brings peers from elsewhere."""
    with BrokerHosts() as hosts:
        accepting = hosts.accepting()
        source = accepting.rpartition(":")[0] + ":40000"
        assert await dial(accepting, 5, source=source, established=False) is DialResult.NOT_ALLOWED
        assert await dial("localhost:1", 5, source="127.0.0.1:1", established=False) is DialResult.NOT_ALLOWED
    assert await dial("192.0.2.1:1", 0.1, networks="", source="192.0.2.2:1", established=False) is (
        DialResult.NOT_ALLOWED
    )
    result = await dial("192.0.2.1:1", 0.1, networks="", source="192.0.2.1:9", established=False)
    assert result is not DialResult.NOT_ALLOWED


async def test_dials_are_limited_in_number_and_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten brokers that accept, two at a time, and at most twenty in a second."""
    monkeypatch.setattr(removals, "MAX_DIALS", 2)
    monkeypatch.setattr(removals, "DIALS_PER_S", 20)
    running = highest = 0
    dial_one = removals._dial_one

    async def count(*arguments: Any) -> DialResult:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        try:
            await asyncio.sleep(0.2)
            return await dial_one(*arguments)
        finally:
            running -= 1

    monkeypatch.setattr(removals, "_dial_one", count)
    with BrokerHosts() as hosts:
        dialler, began = Dialler([ip_network("127.0.0.0/8")]), time.monotonic()
        losses = [
            LostConnection(f"east/{hosts.accepting()}", "broker-a", 0, "1" * 16, 1, source="", established=True)
            for _ in range(10)
        ]
        results = await asyncio.gather(*(dialler.dial(loss, began + 30) for loss in losses))
    assert set(results) == {DialResult.ACCEPTED}
    assert highest == 2
    assert time.monotonic() - began >= 9 / 20
