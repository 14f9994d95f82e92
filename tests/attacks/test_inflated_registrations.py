"""A1: small compressed bodies that inflate to huge registrations, from many connections of one peer.

They must neither make healthy brokers expire nor delay lookups. Both cost what the limits allow: the one attack exceeds
them, the other stays just below.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.attacks.attacked_service import (
    ATTACKER,
    HealthyBroker,
    HighestMemory,
    attacked_service,
    connect,
    inflating_registration,
)
from tests.attacks.lookups import Lookups
from tests.remoting.port import BROKER_A
from tests.support.figures import Figures
from tests.support.peers import Peer

CONNECTIONS, CALM_S, ATTACK_S = 250, 2.0, 9.0
TIMEOUT_MS = 6_000
"""Twelve times the period of the healthy brokers, so that a busy machine alone expires none of them."""
FORMS = {"beyond the limits": 700_000, "within the limits": 30_000}
"""Topics of one registration, 46 and 2 KB compressed."""
COMPRESSED = {"compressed": "true"}


async def attack(peer: Peer, number: int, body: bytes, codes: list[int], seconds: float = ATTACK_S) -> None:
    """One registration a second, each for another broker."""
    await asyncio.sleep(number / CONNECTIONS)
    for attempt in range(int(seconds)):
        ext = (
            BROKER_A
            | COMPRESSED
            | {"brokerName": f"attacker-{number}-{attempt}", "brokerAddr": f"10.0.0.1:{number + 1}"}
        )
        codes.append((await peer.ask(103, ext, body)).code)
        await asyncio.sleep(1)


@pytest.mark.parametrize("topics", FORMS.values(), ids=FORMS)
async def test_inflated_registrations_expire_no_broker_and_delay_no_lookup(
    store_url: str, namespace_name: str, tmp_path: Path, topics: int, figure: Figures
) -> None:
    body = inflating_registration(topics)
    flags = ("--scan-not-active-broker-interval-ms", "200")
    async with attacked_service(store_url, namespace_name, tmp_path, *flags) as service, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(await connect(service)) for _ in range(3)]
        brokers = [HealthyBroker(peer, number, timeout_ms=TIMEOUT_MS) for number, peer in enumerate(peers)]
        for broker in brokers:
            assert (await broker.register()).code == 0
        # Already now: on a busy machine, to connect the attackers takes longer than the timeout of the brokers.
        registering = [asyncio.create_task(broker.keep_registering(0.5)) for broker in brokers]
        attackers = [
            await stack.enter_async_context(await connect(service, source=ATTACKER)) for _ in range(CONNECTIONS)
        ]
        lookups = await stack.enter_async_context(Lookups(service.remoting, brokers[0].topic))
        calm_p99 = await lookups.run(CALM_S)
        codes: list[int] = []
        async with HighestMemory(service) as memory:
            attacks = [asyncio.create_task(attack(peer, n, body, codes)) for n, peer in enumerate(attackers)]
            attack_p99 = await lookups.run(ATTACK_S)
        for task in (*attacks, *registering):
            task.cancel()
        print(
            f"p99 {calm_p99 * 1000:.1f} ms calm, {attack_p99 * 1000:.1f} ms attacked (longest "
            f"{lookups.longest:.3f} s); {len(codes)} attacks answered; longest registration "
            f"{max(broker.longest_s for broker in brokers):.2f} s; {memory.growth:.0f} MiB more"
        )
        changes = [change["kind"] for change in service.get("/v1/changes").json()["changes"]]
        assert "broker-removed" not in changes
        assert lookups.codes == {0}
        assert all(set(broker.codes) == {0} for broker in brokers)
        assert attack_p99 <= max(10 * calm_p99, 1)
        # Bodies within the limits are decoded and kept, as those of large brokers are: the limits bound their sum.
        limit = 80 * 10**6 / 2**20 if topics > FORMS["within the limits"] else 300
        figure(f"memory growth, {CONNECTIONS} connections with {topics:,} topics", memory.growth, "MiB", at_most=limit)
