"""Traffic on both ports that changes every metric about requests, in a few seconds."""

import asyncio
import secrets
from pathlib import Path

import httpx

from routebook.model.broker import DataVersion, QueueData
from routebook.protocol.frame import Ext, RequestCode, ResponseCode
from routebook.remoting_client import RemotingClient
from routebook.simulate.broker import registration_body, registration_ext
from tests.runtime.running import Running

ADDRESS = "127.0.0.21:10911"
LOOKUP_SECONDS = 1.5
"""Long enough for several timed lookups; at most ten per second are timed."""


def start_service(store_url: str, folder: Path, *, workers: int) -> Running:
    flags = (
        "--bind-address",
        "127.0.0.1",
        "--namespace",
        f"t-{secrets.token_hex(6)}",
        "--workers",
        str(workers),
        "--log-format",
        "json",
    )
    return Running("serve", "--redis-url", store_url, *flags, folder=folder)


async def make_traffic(service: Running) -> None:
    await asyncio.to_thread(_over_http, service)
    await _over_remoting(service.remoting)


def _over_http(service: Running) -> None:
    service.register("broker-h", "TopicA")
    service.register("broker-h", "TopicA")
    service.register("broker-gone", "TopicG")
    assert service.get("/v1/routes/NoSuchTopic").status_code == 404
    assert service.delete("/v1/clusters/demo/brokers/broker-gone/0").status_code in (200, 204)
    assert service.delete("/v1/clusters/demo/brokers/broker-gone/0").status_code == 404
    assert service.put("/v1/clusters/demo/brokers/broker-bad/0", {"address": ""}).status_code == 422
    with httpx.Client(base_url=service.http, trust_env=False, timeout=10) as client:
        for _ in range(150):
            assert client.get("/v1/routes/TopicA").status_code == 200


async def _over_remoting(address: str) -> None:
    async with await RemotingClient.connect(address) as broker:
        for _ in range(3):
            assert await _ask(broker, RequestCode.REGISTER_BROKER, *_registration("broker-r")) == ResponseCode.SUCCESS
        seat = {"clusterName": "demo", "brokerAddr": ADDRESS, "brokerName": "broker-r"}
        assert await _ask(broker, RequestCode.BROKER_HEARTBEAT, seat) == ResponseCode.SUCCESS
        assert await _ask(broker, RequestCode.REGISTER_BROKER, {"clusterName": "demo"}) == ResponseCode.SYSTEM_ERROR
        assert await _ask(broker, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "No"}) == ResponseCode.TOPIC_NOT_EXIST
        end = asyncio.get_running_loop().time() + LOOKUP_SECONDS
        while asyncio.get_running_loop().time() < end:
            assert await _ask(broker, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicR"}) == ResponseCode.SUCCESS
            await asyncio.sleep(0.002)
        unregistration = {**seat, "brokerId": "0"}
        assert await _ask(broker, RequestCode.UNREGISTER_BROKER, unregistration) == ResponseCode.SUCCESS


def _registration(broker: str) -> tuple[Ext, bytes]:
    topics = {name: QueueData(8, 8, 6, 0) for name in ("TopicR", "TopicS")}
    body = registration_body(DataVersion(0, 1_700_000_000_000, 1), topics)
    ext = registration_ext(body, cluster="demo", broker=broker, broker_id=0, address=ADDRESS, timeout_ms=None)
    return ext, body


async def _ask(client: RemotingClient, code: RequestCode, ext: Ext, body: bytes = b"") -> int:
    return (await client.request(code, ext=ext, body=body)).code
