"""Registration, heartbeat, unregistration, expiry, session close, recovery and takeover in many orders, on the real
scripts and a real server. The default lane runs a small sample of the orders, `make test-all` a large one.
"""

import hashlib
from collections.abc import AsyncIterator, Iterator

import pytest

from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.namespace import ScriptSet
from tests.interleavings.exploring import all_orders, explore, sampled_orders
from tests.interleavings.world import SCENARIOS
from tests.support.scripts import with_text

SAMPLE = 120
"""Orders of each scenario in the default lane."""
LARGE_SAMPLE = 2_500
"""In `make test-all`: 20,000 together, where row 8 of the faults requires 10,000."""


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    with EmbeddedStore(None) as running:
        yield running


@pytest.fixture
async def own_client(store: EmbeddedStore) -> AsyncIterator[StoreClient]:
    client = StoreClient(StoreUrl.parse(store.url), slot_key="any", timeout_ms=60_000, connections=4)
    await client.open()
    yield client
    await client.call("FLUSHALL")
    await client.close()


def test_every_order_is_listed_once() -> None:
    orders = list(all_orders([2, 1, 1]))
    assert len(orders) == len(set(orders)) == 12
    assert {tuple(sorted(order)) for order in orders} == {(0, 0, 1, 2)}
    assert len(set(sampled_orders([2, 1, 1], 12, 1))) == 12


@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_sampled_order_breaks_an_invariant(name: str, own_client: StoreClient) -> None:
    explored = await explore(own_client, SCENARIOS[name], at_most=SAMPLE, seed=seed_of(name))
    assert explored.orders == SAMPLE


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_order_of_a_large_sample_breaks_an_invariant(name: str, own_client: StoreClient) -> None:
    explored = await explore(own_client, SCENARIOS[name], at_most=LARGE_SAMPLE, seed=seed_of(name) + 1)
    assert explored.orders == LARGE_SAMPLE
    assert 0 < explored.removals < LARGE_SAMPLE, "the same side always won the race"


IS_PENDING = "is_loss_pending(instance_name, current, removal.lost_ms)"


@pytest.mark.parametrize(
    ("script", "protection", "without", "scenario", "invariant"),
    [
        ("unregister_brokers", f" or not {IS_PENDING}", "", "a broker flaps", "I1"),
        (
            "unregister_brokers",
            f"has_session(instance_name, current) or not {IS_PENDING}",
            "false",
            "a broker flaps",
            "I1",
        ),
        ("expire_brokers", "if not is_leader(lease) then", "if false then", "an orderly restart", "I7"),
        ("expire_brokers", "deadline < deadline_now and ", "", "expiry, takeover and session close", "I1"),
        ("touch_broker", "known[3] == revision and ", "", "a topic is deleted", "I9"),
        (
            "unregister_brokers",
            "redis.call('UNLINK', key_of('queues', removal.broker))",
            "",
            "an orderly restart",
            "I3",
        ),
    ],
    ids=["loss", "session", "fence", "deadline", "revision", "half"],
)
async def test_a_missing_protection_is_found(
    script: str, protection: str, without: str, scenario: str, invariant: str, own_client: StoreClient
) -> None:
    scripts = with_text(ScriptSet.load(), script, protection, without)
    with pytest.raises(ExceptionGroup) as found:
        await explore(own_client, SCENARIOS[scenario], at_most=LARGE_SAMPLE, seed=1, scripts=scripts)
    assert invariant in str(found.value.exceptions[0])


def seed_of(name: str) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
