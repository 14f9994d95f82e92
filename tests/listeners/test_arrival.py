"""Whom a connection is judged as when it comes to permissions."""

from ipaddress import ip_network

import pytest

from routebook.listeners.arrival import Arrival, arrival_of, endpoint_of, is_within
from routebook.protocol.opening import Endpoint, ProxyHeader

STRANGER, LOCAL, BALANCER = Endpoint("192.0.2.7", 1), Endpoint("127.0.0.1", 2), Endpoint("10.0.0.1", 3)


def arrived(real: Endpoint, proxy: ProxyHeader | None) -> Arrival:
    return arrival_of(real, proxy, is_tls=False)


@pytest.mark.parametrize(
    ("real", "proxy", "judged"),
    [
        (STRANGER, None, STRANGER),
        (LOCAL, None, LOCAL),
        (LOCAL, ProxyHeader(STRANGER), STRANGER),
        (LOCAL, ProxyHeader(LOCAL), LOCAL),
        (LOCAL, ProxyHeader(), None),
        (BALANCER, ProxyHeader(), None),
        (BALANCER, ProxyHeader(STRANGER), STRANGER),
        (BALANCER, ProxyHeader(LOCAL), None),
        (BALANCER, ProxyHeader(Endpoint("::1", 4)), None),
        (BALANCER, ProxyHeader(Endpoint("::ffff:127.0.0.1", 4)), None),
    ],
)
def test_nobody_gains_by_a_balancer(real: Endpoint, proxy: ProxyHeader | None, judged: Endpoint | None) -> None:
    assert arrived(real, proxy).judged_as == judged


def test_ipv4_in_ipv6_goes_by_its_own_name() -> None:
    assert endpoint_of(("::ffff:192.0.2.7", 5, 0, 0)) == Endpoint("192.0.2.7", 5)
    assert endpoint_of(("2001:db8::7", 5, 0, 0)) == Endpoint("2001:db8::7", 5)
    assert arrived(Endpoint("2001:db8::7", 5), None).peer == "[2001:db8::7]:5"
    assert arrived(Endpoint("fe80::1%eth0", 5), None).peer == "[fe80::1%eth0]:5"


def test_networks_hold_addresses_in_either_writing() -> None:
    networks = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert is_within("10.1.2.3", networks)
    assert is_within("::ffff:10.1.2.3", networks)
    assert is_within("fd00::1%eth0", networks)
    assert not is_within("11.0.0.1", networks)
    assert not is_within("10.1.2.3", ())
