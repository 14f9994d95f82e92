"""A13: one peer can take neither all connections nor all watches."""

import asyncio
from pathlib import Path

import httpx

from tests.attacks.attacked_service import ATTACKER, attacked_service, connect, connect_http
from tests.remoting.port import BROKER_A, registration_body
from tests.support.peers import Answer, Peer

LIMIT, FAKE_BROKERS, WATCHES = 200, 210, 1000


async def register(peer: Peer, name: str, address: str) -> Answer:
    return await peer.ask(103, BROKER_A | {"brokerName": name, "brokerAddr": address}, registration_body("A", "B"))


async def test_fake_brokers_do_not_lock_out_real_ones(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    async with attacked_service(store_url, namespace_name, tmp_path, "--max-connections", str(LIMIT)) as service:
        first, reconnecting = await connect(service), await connect(service)
        assert (await register(first, "real-1", "127.0.0.11:10911")).code == 0
        assert (await register(reconnecting, "real-2", "127.0.0.12:10911")).code == 0
        fakes = []
        for number in range(FAKE_BROKERS):
            fake = await connect(service, source=ATTACKER)
            fakes.append(fake)
            try:
                await register(fake, f"fake-{number}", f"127.0.1.{number}:10911")
            except (OSError, asyncio.IncompleteReadError):
                continue
        reconnecting.abort()
        for number in (2, 3, 4):
            returning = await connect(service)
            fakes.append(returning)
            assert (await register(returning, f"real-{number}", f"127.0.0.{10 + number}:10911")).code == 0
        assert (await register(first, "real-1", "127.0.0.11:10911")).code == 0
        for one in [*fakes, first]:
            one.abort()


async def test_watches_of_one_peer_leave_some_to_others(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    async with attacked_service(store_url, namespace_name, tmp_path) as service:
        watching = []
        for _ in range(WATCHES):
            peer = await connect_http(service)
            await peer.send(b"GET /v1/watch HTTP/1.1\r\nhost: localhost\r\n\r\n")
            watching.append(peer)
        statuses = [(await peer.receive(12)).decode() for peer in watching]
        # Requests that arrive at the same moment are counted when their streams begin.
        assert 500 <= statuses.count("HTTP/1.1 200") < 550
        async with (
            httpx.AsyncClient(base_url=service.http, trust_env=False) as http,
            http.stream("GET", "/v1/watch") as answer,
        ):
            assert answer.status_code == 200
        for one in watching:
            one.abort()
