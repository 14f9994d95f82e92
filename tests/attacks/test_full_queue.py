"""A5: while the queue of requests is full, heartbeats and unchanged registrations are handled as always."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

from tests.attacks.attacked_service import ATTACKER, attacked_service, connect, inflating_registration
from tests.remoting.port import BROKER_A, register
from tests.support.peers import Peer
from tests.support.waiting import until

CAPACITY, CONNECTIONS, REGISTRATIONS = 16, 40, 20


async def fill(peer: Peer, number: int, body: bytes, codes: list[int]) -> None:
    for attempt in range(REGISTRATIONS):
        ext = BROKER_A | {"compressed": "true", "brokerName": f"b-{number}-{attempt}", "brokerAddr": "10.0.0.1:1"}
        peer.write(peer.request(103, ext, body))
    while True:
        answer = await peer.answer()
        codes.append(answer.code)


async def test_a_full_queue_refuses_no_sign_of_life(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    body = inflating_registration(30_000)
    flags = ("--default-thread-pool-queue-capacity", str(CAPACITY))
    async with attacked_service(store_url, namespace_name, tmp_path, *flags) as service, AsyncExitStack() as stack:
        broker = await stack.enter_async_context(await connect(service))
        assert (await register(broker)).code == 0
        codes: list[int] = []
        fillers = [await stack.enter_async_context(await connect(service, source=ATTACKER)) for _ in range(CONNECTIONS)]
        filling = [asyncio.create_task(fill(peer, n, body, codes)) for n, peer in enumerate(fillers)]
        await until(lambda: 2 in codes)
        names = {name: BROKER_A[name] for name in ("clusterName", "brokerName", "brokerAddr")}
        answers, began = [], time.monotonic()
        while time.monotonic() - began < 2:
            answers += [await broker.ask(904, names), await broker.ask(322, names), await register(broker)]
        assert {answer.code for answer in answers} == {0}
        assert len(answers) >= 6
        for task in filling:
            task.cancel()
