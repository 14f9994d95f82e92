"""A name server with prepared responses, for releases of which no server is available to the tests."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.protocol.plain_frames import framed
from tests.support.peers import Peer, server_playing, split_json_frame

Ext = dict[str, str]


@dataclass
class CannedServer:
    """The responses, in the JSON dialect with unquoted integer keys. Requests with a code in `silent` get no response;
    those with a code in `refused` get that code and remark.
    """

    cluster_info: str = '{"brokerAddrTable":{},"clusterAddrTable":{}}'
    routes: dict[str, str] = field(default_factory=dict)
    listings: dict[int, list[str]] = field(default_factory=dict)
    key_values: dict[str, dict[str, str]] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    properties: str = ""
    silent: set[int] = field(default_factory=set)
    refused: dict[int, tuple[int, str]] = field(default_factory=dict)
    requests: list[tuple[int, Ext]] = field(default_factory=list)

    def answer(self, code: int, ext: Ext) -> tuple[int, str, str]:
        """Returns code, remark and body."""
        self.requests.append((code, ext))
        if code in self.refused:
            return *self.refused[code], ""
        match code:
            case 105 if ext["topic"] in self.routes:
                return 0, "", self.routes[ext["topic"]]
            case 105:
                return 17, f"No topic route info in name server for the topic: {ext['topic']}", ""
            case 106:
                return 0, "", self.cluster_info
            case 206:
                return 0, "", json.dumps({"topicList": list(self.routes)})
            case 224 | 304 | 311 | 312 | 313:
                return 0, "", json.dumps({"topicList": self.listings.get(code, [])})
            case 219 if ext["namespace"] in self.key_values:
                return 0, "", json.dumps({"table": self.key_values[ext["namespace"]]})
            case 219:
                return 22, f"No config item, Namespace: {ext['namespace']}", ""
            case 319:
                return 0, "", self.properties
            case 901:
                return 0, "not set any response code", self.members[ext["brokerName"]]
        return 3, f" request type {code} not supported", ""

    async def play(self, caller: Peer) -> None:
        while True:
            try:
                header, _ = split_json_frame(await caller.frame(timeout_s=None))
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return
            code, remark, body = self.answer(header["code"], header.get("extFields") or {})
            if header["code"] not in self.silent:
                fields = {"code": code, "flag": 1, "language": "JAVA", "opaque": header["opaque"], "version": 479}
                await caller.send(framed(json.dumps({**fields, "remark": remark}).encode(), body.encode()))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async with server_playing(self.play) as address:
            yield address


def broker_data(name: str = "broker-a", addresses: str = '{0:"127.0.0.11:10911"}', rest: str = "") -> str:
    return f'{{"brokerAddrs":{addresses},"brokerName":"{name}","cluster":"DefaultCluster"{rest}}}'


def queue_data(name: str = "broker-a", read: int = 8, perm: int = 6, flags: int = 0) -> str:
    return (
        f'{{"brokerName":"{name}","perm":{perm},"readQueueNums":{read},"topicSysFlag":{flags},"writeQueueNums":{read}}}'
    )


def route(brokers: list[str], queues: list[str], rest: str = "") -> str:
    return f'{{"brokerDatas":[{",".join(brokers)}],"filterServerTable":{{}},"queueDatas":[{",".join(queues)}]{rest}}}'


def one_broker(**changes: Any) -> CannedServer:
    """A server with broker-a, which has TopicA."""
    cluster_info = (
        f'{{"brokerAddrTable":{{"broker-a":{broker_data()}}},"clusterAddrTable":{{"DefaultCluster":["broker-a"]}}}}'
    )
    defaults: dict[str, Any] = {
        "cluster_info": cluster_info,
        "routes": {"TopicA": route([broker_data()], [queue_data()])},
        "listings": {304: ["DefaultCluster", "broker-a"]},
        "members": {"broker-a": f'{{"brokerMemberGroup":{broker_data()}}}'},
    }
    return CannedServer(**{**defaults, **changes})


@contextmanager
def serving(server: CannedServer) -> Iterator[str]:
    """Runs the server in its own thread, because the command under test has its own event loop."""
    address: list[str] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()

    async def serve() -> None:
        async with server.serving() as found:
            address.append(found)
            ready.set()
            await stopped.wait()
        # A connection that has been closed again may still have to be accepted.
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(10)
        loop.close()
