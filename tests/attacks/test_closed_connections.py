"""A4: what a closed connection held is released at once, and nothing that its peer asked for is worked on any more."""

import asyncio
from pathlib import Path

import pytest

from tests.attacks.attacked_service import ATTACKER, MIB, HighestMemory, attacked_service, connect
from tests.remoting.port import BROKER_A, registration_body
from tests.support.waiting import until

FRAMES, FRAME_MIB = 70, 14


@pytest.mark.parametrize("is_complete", [True, False], ids=["complete", "incomplete"])
async def test_large_frames_of_closed_connections_are_not_kept(
    store_url: str, namespace_name: str, tmp_path: Path, is_complete: bool
) -> None:
    """Without the fix, a gigabyte waits for the garbage collector."""
    async with attacked_service(store_url, namespace_name, tmp_path) as service:
        async with await connect(service) as peer:
            frame = peer.request(901, {"clusterName": "c", "brokerName": "b"}, b"x" * (FRAME_MIB * MIB))
        async with HighestMemory(service) as memory:
            for _ in range(FRAMES):
                async with await connect(service, source=ATTACKER) as peer:
                    await peer.send(frame if is_complete else frame[:-1])
                    if is_complete:
                        await peer.answer()
        assert memory.growth < 300, f"{memory.growth:.0f} MiB for frames of closed connections"


async def test_registrations_of_closed_connections_are_not_worked_on(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    brokers = 30
    body = registration_body(*(f"Topic-{number:06}" for number in range(20_000)))
    async with attacked_service(store_url, namespace_name, tmp_path) as service, await connect(service) as other:
        attackers = [await connect(service, source=ATTACKER) for _ in range(brokers)]
        for number, attacker in enumerate(attackers):
            await attacker.send(attacker.request(103, BROKER_A | {"brokerName": f"b-{number}"}, body))
            await attacker.close()

        async def is_quiet() -> bool:
            metrics = (await asyncio.to_thread(service.get_admin, "/metrics")).text
            waiting = [line for line in metrics.splitlines() if line.startswith("routebook_remoting_waiting")]
            return bool(waiting) and all(line.endswith(" 0.0") for line in waiting)

        await until(is_quiet)
        await asyncio.sleep(1)
        registered = (await other.ask(106)).body.count(b'"brokerName":"b-')
        assert registered <= brokers // 3
