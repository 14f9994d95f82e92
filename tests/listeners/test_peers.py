"""What the peers of a worker cost it: budgets, and the bounded table of addresses."""

import pytest

from routebook.listeners.peers import Budget, PeerLimits, Peers


def test_a_budget_is_used_up_and_refilled() -> None:
    budget = Budget(per_second=10, burst=20)
    assert [budget.take(1, 100.0) for _ in range(21)] == [True] * 20 + [False]
    assert budget.wait_s(100.0, 1) == pytest.approx(0.1)
    assert budget.take(1, 100.15)
    assert not budget.take(1, 100.18)


def test_a_budget_holds_no_more_than_its_burst() -> None:
    budget = Budget(per_second=10, burst=20)
    assert budget.take(20, 1000.0)
    assert not budget.take(1, 1000.0)


def test_a_cost_larger_than_the_burst_is_paid_back() -> None:
    budget = Budget(per_second=10, burst=20)
    assert budget.take(70, 100.0)
    assert not budget.take(1, 104.0)
    assert budget.wait_s(104.0) == pytest.approx(1.0)
    assert not budget.take(1, 105.0)
    assert budget.take(1, 105.2)


def test_a_cost_that_has_been_spent_is_charged_in_any_case() -> None:
    budget = Budget(per_second=1, burst=1)
    budget.charge(3, 100.0)
    budget.charge(1, 100.0)
    assert not budget.has_any(102.9)
    assert budget.has_any(103.1)


def test_a_clock_that_goes_back_adds_nothing() -> None:
    budget = Budget(per_second=1, burst=1)
    assert budget.take(1, 100.0)
    assert not budget.take(1, 50.0)
    assert not budget.take(1, 100.0)


def test_a_rate_of_zero_is_no_limit() -> None:
    budget = Budget(0, 0)
    budget.charge(1e9, 1.0)
    assert budget.take(1e9, 1.0)
    assert budget.has_any(1.0)
    assert budget.wait_s(1.0) == 0


def test_the_connections_of_an_address_are_limited() -> None:
    peers = Peers(PeerLimits(connections=2))
    peer = peers.get("192.0.2.1")
    assert [peers.connect(peer) for _ in range(3)] == [True, True, False]
    assert peers.connect(peers.get("192.0.2.2"))
    peers.disconnect(peer)
    assert peers.connect(peer)


def test_an_address_keeps_its_budgets_between_connections() -> None:
    peers = Peers(PeerLimits(failed_sign_ins_per_minute=1))
    peer = peers.get("192.0.2.1")
    peers.connect(peer)
    assert peer.sign_ins.take(1, 100.0)
    peers.disconnect(peer)
    assert not peers.get("192.0.2.1").sign_ins.take(1, 101.0)


def test_the_table_keeps_connected_peers_and_a_number_of_idle_ones() -> None:
    peers = Peers(idle_peers=3)
    connected = peers.get("192.0.2.1")
    peers.connect(connected)
    for number in range(50):
        peers.get(f"198.51.100.{number}")
    assert len(peers) == 4
    assert peers.get("192.0.2.1") is connected
    recent = peers.get("198.51.100.48")
    peers.get("203.0.113.1")
    assert peers.get("198.51.100.48") is recent


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2", True),
        ("::1", "::2", False),
        ("192.0.2.1", "192.0.2.2", False),
        ("proxied-by-::1", "proxied-by-::1", True),
    ],
)
def test_an_ipv6_network_of_64_bits_is_one_peer(one: str, other: str, is_same: bool) -> None:
    peers = Peers()
    assert (peers.get(one) is peers.get(other)) is is_same
