"""The address that permissions depend on."""

from ipaddress import ip_network

import pytest

from routebook.listeners.acceptor import ConnectionInfo, connection_info, endpoint_of, is_within
from routebook.protocol.opening import Endpoint, ProxyHeader

STRANGER, LOCAL, BALANCER = Endpoint("192.0.2.7", 1), Endpoint("127.0.0.1", 2), Endpoint("10.0.0.1", 3)


def info_of(real: Endpoint, proxy: ProxyHeader | None) -> ConnectionInfo:
    return connection_info(real, proxy, is_tls=False)


@pytest.mark.parametrize(
    ("real", "proxy", "address"),
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
def test_a_balancer_gives_its_clients_no_permission(
    real: Endpoint, proxy: ProxyHeader | None, address: Endpoint | None
) -> None:
    assert info_of(real, proxy).permission_address == address


def test_an_ipv4_address_inside_ipv6_is_shown_as_ipv4() -> None:
    assert endpoint_of(("::ffff:192.0.2.7", 5, 0, 0)) == Endpoint("192.0.2.7", 5)
    assert endpoint_of(("2001:db8::7", 5, 0, 0)) == Endpoint("2001:db8::7", 5)
    assert info_of(Endpoint("2001:db8::7", 5), None).peer == "[2001:db8::7]:5"
    assert info_of(Endpoint("fe80::1%eth0", 5), None).peer == "[fe80::1%eth0]:5"


def test_a_network_contains_ipv4_addresses_inside_ipv6() -> None:
    networks = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert is_within("10.1.2.3", networks)
    assert is_within("::ffff:10.1.2.3", networks)
    assert is_within("fd00::1%eth0", networks)
    assert not is_within("11.0.0.1", networks)
    assert not is_within("10.1.2.3", ())
