"""A2: large JSON bodies over HTTP that are cheap to send and expensive to decode."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.attacks.attacked_service import HighestMemory, attacked_service, connect, connect_http
from tests.attacks.lookups import Lookups
from tests.remoting.port import register

SIZE = 47_000_000
SEAT = "/v1/clusters/demo/brokers/attacker/0"
ADDRESS = b'{"address":"127.0.0.11:10911",'


def nested_arrays() -> bytes:
    return ADDRESS + b'"topics":' + b"[" * (SIZE // 2) + b"]" * (SIZE // 2) + b"}"


def many_arrays() -> bytes:
    return ADDRESS + b'"filters":[' + b"[]," * (SIZE // 3) + b"0]}"


def invalid_topics() -> bytes:
    return ADDRESS + b'"topics":{' + b",".join(b'"%d":1' % number for number in range(SIZE // 12)) + b"}}"


@pytest.mark.parametrize("path", [SEAT, "/v1/snapshot", "/v1/topics/TopicA"])
@pytest.mark.parametrize("make", [nested_arrays, many_arrays, invalid_topics], ids=lambda make: make.__name__)
async def test_a_large_body_stops_no_lookup_and_takes_no_memory(
    store_url: str, namespace_name: str, tmp_path: Path, make: object, path: str
) -> None:
    assert callable(make)
    body = make()
    head = f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    async with (
        attacked_service(store_url, namespace_name, tmp_path) as service,
        await connect(service) as peer,
        await connect_http(service) as attacker,
    ):
        await register(peer)
        async with Lookups(service.remoting, "TopicA") as lookups, HighestMemory(service) as memory:
            await lookups.run(0.5)
            looking = asyncio.create_task(lookups.run(3))
            await attacker.send(head.encode(), body)
            status = int((await attacker.read_to_end()).split(b" ", 2)[1])
            await looking
        print(f"{status}; longest lookup {lookups.longest:.3f} s, {memory.growth:.0f} MiB more")
        assert 400 <= status < 500
        assert lookups.codes == {0}
        assert lookups.longest < 1
        assert memory.growth < 250


async def test_a_large_registration_over_http_is_accepted(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    queues = {"read_queues": 8, "write_queues": 8}
    body = {"address": "127.0.0.11:10911", "topics": {f"Topic-{number:05}": queues for number in range(70_000)}}
    body |= {"mappings": {"Static": {"bname": "large", "total_queues": 1, "current_ids": {"0": 0}}}}
    async with attacked_service(store_url, namespace_name, tmp_path) as service:
        answer = await asyncio.to_thread(service.put, SEAT.replace("attacker", "large"), body)
        assert answer.status_code == 200, answer.text
        topics = await asyncio.to_thread(service.get, "/v1/topics/Topic-69999")
        assert json.loads(topics.text)["queues"]


async def test_a_large_snapshot_is_refused_before_it_is_decoded(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    """The body is not even JSON: only administrators may have it decoded. A small one is decoded for everyone."""
    flags = ("--bind-address", "0.0.0.0")  # all traffic goes to 127.0.0.1
    async with attacked_service(store_url, namespace_name, tmp_path, *flags) as service:
        for size, status in ((2 * 1024 * 1024, 401), (100, 400)):
            head = f"PUT /v1/snapshot HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n"
            async with await connect_http(service) as attacker:
                await attacker.send(head.encode() + b"Connection: close\r\n\r\n", b"{" * size)
                assert int((await attacker.read_to_end()).split(b" ", 2)[1]) == status
