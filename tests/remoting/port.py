"""The remoting port of a worker in the test's own process, on a real store, and requests of peers."""

import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from routebook.listeners.peers import PeerLimits, Peers
from routebook.listeners.tls import ServerTls
from routebook.observability.metrics import Metrics
from routebook.remoting.server import RemotingServer
from tests.support.in_process import InProcessWorker, start_worker
from tests.support.peers import Answer, Peer

BROKER_A = {
    "clusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.11:10911",
    "brokerId": "0",
    "haServerAddr": "127.0.0.11:10912",
    "enableActingMaster": "false",
}


@dataclass
class PortUnderTest:
    address: str
    server: RemotingServer
    worker: InProcessWorker
    metrics: Metrics

    @property
    def number(self) -> int:
        return int(self.address.rpartition(":")[2])


@asynccontextmanager
async def remoting_port(store_url: str, namespace: str, **settings: Any) -> AsyncIterator[PortUnderTest]:
    """All keywords but `tls` are settings."""
    tls: ServerTls | None = settings.pop("tls", None)
    worker = await start_worker(store_url, namespace, **settings)
    metrics = Metrics()
    peers = Peers(PeerLimits.of(worker.live.current))
    server = RemotingServer(worker.registry, worker.live, metrics, tls, peers)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1000)
    listener.setblocking(False)
    server.start(listener)
    try:
        yield PortUnderTest(f"127.0.0.1:{listener.getsockname()[1]}", server, worker, metrics)
    finally:
        worker.registry.sessions.drain()
        await server.close()
        listener.close()
        await worker.end()


def topic(name: str, **fields: Any) -> dict[str, Any]:
    return {"topicName": name, "readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicSysFlag": 0, **fields}


def registration_body(
    *topics: str | Mapping[str, Any], counter: int = 1, filters: list[str] | None = None, **wrapper: Any
) -> bytes:
    table = [topic(one) if isinstance(one, str) else dict(one) for one in topics]
    fields = {
        "filterServerList": filters or [],
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": counter, "stateVersion": 0, "timestamp": 1700000000000},
            "topicConfigTable": {one["topicName"]: one for one in table},
            **wrapper,
        },
    }
    return json.dumps(fields).encode()


async def register(
    peer: Peer, *topics: str | Mapping[str, Any], body: bytes | None = None, counter: int = 1, **ext: str
) -> Answer:
    """Broker A with at least two topics, since one alone is an increment."""
    sent = registration_body(*(topics or ("TopicA", "TopicB")), counter=counter) if body is None else body
    return await peer.ask(103, BROKER_A | ext, sent)


async def lookup(peer: Peer, name: str, **ext: str) -> Answer:
    return await peer.ask(105, {"topic": name, **ext})


async def route(peer: Peer, name: str, **ext: str) -> Any:
    answer = await lookup(peer, name, **ext)
    assert answer.code == 0, answer
    return json.loads(answer.body)
