"""A7: a peer that knows the names of a broker cannot take its seat, remove it, or keep it alive when it is dead."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.attacks.attacked_service import ATTACKER, attacked_service, connect
from tests.remoting.port import BROKER_A, lookup, register, registration_body, route
from tests.support.peers import Peer
from tests.support.waiting import until

NAMES = {name: BROKER_A[name] for name in ("clusterName", "brokerName", "brokerAddr", "brokerId")}
THEFT = BROKER_A | {"brokerAddr": "127.0.0.66:10911"}


EVERY_ADDRESS = ("--bind-address", "0.0.0.0")
FAST_SCAN = ("--scan-not-active-broker-interval-ms", "100")


def with_state_version(number: int) -> bytes:
    version = {"counter": 1, "stateVersion": number, "timestamp": 1_700_000_000_000}
    return registration_body("TopicA", "TopicB", dataVersion=version)


@pytest.mark.parametrize("number", [2**63 - 1, 2**31 - 1])
async def test_an_impossible_state_version_takes_no_seat(
    number: int, store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    """Without the limit, the real broker is turned down from then on."""
    async with (
        attacked_service(store_url, namespace_name, tmp_path, *EVERY_ADDRESS) as service,
        await connect(service) as broker,
        await connect(service, source=ATTACKER) as attacker,
    ):
        assert (await register(broker)).code == 0
        answer = await attacker.ask(103, THEFT, with_state_version(number))
        assert (answer.code, "stateVersion" in (answer.remark or "")) == (1, True)
        assert (await register(broker)).code == 0
        (group,) = (await route(broker, "TopicA"))["brokerDatas"]
        assert group["brokerAddrs"] == {"0": BROKER_A["brokerAddr"]}


async def test_a_broker_with_a_connection_is_removed_by_no_other_connection(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    flags = (*EVERY_ADDRESS, "--workers", "2")
    async with attacked_service(store_url, namespace_name, tmp_path, *flags) as service, AsyncExitStack() as stack:
        broker = await stack.enter_async_context(await connect(service))
        assert (await register(broker)).code == 0
        # Several, so that both workers are asked.
        for attempt in range(6):
            source = ATTACKER if attempt % 2 else None
            attacker = await stack.enter_async_context(await connect(service, source=source))
            assert (await attacker.ask(104, NAMES)).code == 0
            # The next request of a connection waits for the effect of an unregistration.
            assert (await attacker.ask(106)).code == 0
            assert (await lookup(broker, "TopicA")).code == 0
        assert (await broker.ask(104, NAMES)).code == 0

        async def has_left() -> bool:
            return (await lookup(broker, "TopicA")).code == 17

        await until(has_left)


@pytest.mark.parametrize("code", [904, 322])
async def test_heartbeats_of_another_host_keep_no_silent_broker(
    code: int, store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    """The broker's connection is open, and nothing comes over it: it hangs, or its network is gone."""
    async with (
        attacked_service(store_url, namespace_name, tmp_path, *EVERY_ADDRESS, *FAST_SCAN) as service,
        await connect(service) as broker,
        await connect(service, source=ATTACKER) as attacker,
    ):
        assert (await register(broker, heartbeatTimeoutMillis="2000")).code == 0

        codes: list[int] = []

        async def send_heartbeats(peer: Peer) -> None:
            while True:
                codes.append((await peer.ask(code, NAMES)).code)
                await asyncio.sleep(0.1)

        heartbeats = asyncio.create_task(send_heartbeats(attacker))
        async with await connect(service) as client:

            async def has_expired() -> bool:
                return (await lookup(client, "TopicA")).code == 17

            await until(has_expired)
        heartbeats.cancel()
        assert len(codes) > 5
        assert 16 in codes


async def test_a_broker_that_reconnects_stays_alive_by_heartbeats(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    """Its former connection still seems open, and its next registration comes only after its timeout."""
    async with (
        attacked_service(store_url, namespace_name, tmp_path, *EVERY_ADDRESS, *FAST_SCAN) as service,
        await connect(service) as former,
        await connect(service) as present,
    ):
        assert (await register(former, heartbeatTimeoutMillis="1500")).code == 0
        for _ in range(30):
            assert (await present.ask(904, NAMES)).code == 0
            await asyncio.sleep(0.1)
        assert (await lookup(present, "TopicA")).code == 0
