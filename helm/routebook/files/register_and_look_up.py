"""The program of `helm test`: registers a broker through the Service, looks it up, and unregisters it.

Arguments: remoting host:port, HTTP host:port, TLS mode. Each lookup uses a new connection, so that the Service spreads
them over several workers. Failed steps are repeated until the deadline, since a worker may be stopping or warming up.
"""

import asyncio
import contextlib
import json
import secrets
import ssl
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from routebook.errors import RoutebookError
from routebook.protocol.frame import Ext, RequestCode, Response, ResponseCode
from routebook.protocol.headers import write_fields
from routebook.remoting_client import RemotingClient

DEADLINE_S = 120
PAUSE_S = 1.0
CONNECTIONS = 12
# A documentation address (RFC 5737) that no broker has.
ADDRESS = "192.0.2.1:10911"
HA_ADDRESS = "192.0.2.1:10912"
CLUSTER = "helm-test"


class NotYetError(Exception):
    """A step has not succeeded yet."""


EXPECTED_ERRORS = (NotYetError, RoutebookError, OSError)


def unverified_context() -> ssl.SSLContext:
    """Accepts any certificate: it covers other host names than the Service's, and is not what is tested."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def registration_body(topics: list[str]) -> bytes:
    version = {"counter": 1, "stateVersion": 0, "timestamp": int(time.time() * 1000)}
    table = {
        topic: {"topicName": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}
        for topic in topics
    }
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def successful_body(response: Response) -> bytes:
    if response.code != ResponseCode.SUCCESS:
        raise NotYetError(f"code {response.code}: {(response.remark or '').strip()}")
    return response.body


def check_route(route: dict[str, Any]) -> None:
    addresses = [broker["brokerAddrs"].get("0") for broker in route["brokerDatas"]]
    if addresses != [ADDRESS]:
        raise NotYetError(f"the route names {addresses}")


class RoundTrip:
    def __init__(self, remoting: str, http: str, tls_mode: str) -> None:
        self._remoting = remoting
        self._tls = unverified_context() if tls_mode == "enforcing" else None
        self._url = f"{'https' if self._tls else 'http'}://{http}"
        self._broker = f"helm-test-{secrets.token_hex(4)}"
        # Two topics: a new broker that registers only one is refused, as by Apache's name server.
        self._topics = [f"{self._broker}-a", f"{self._broker}-b"]
        self._session: RemotingClient | None = None
        self._seat: Ext = {"brokerName": self._broker, "brokerAddr": ADDRESS, "clusterName": CLUSTER, "brokerId": "0"}

    async def run(self) -> None:
        try:
            await self._until_done("registered", self._register)
            await self._until_done(f"found on {CONNECTIONS} connections", self._look_up_everywhere)
            await self._until_done("found over HTTP", lambda: asyncio.to_thread(self._look_up_over_http))
        except SystemExit:
            with contextlib.suppress(*EXPECTED_ERRORS):
                await self._unregister()
            raise
        await self._until_done("unregistered", self._unregister)
        await self._close_session()

    async def _until_done(self, what: str, attempt: Callable[[], Awaitable[None]]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                await attempt()
            except EXPECTED_ERRORS as error:
                if time.monotonic() > deadline:
                    sys.exit(f"not {what}: {error}")
                print(f"not yet {what}: {error}", flush=True)
                await asyncio.sleep(PAUSE_S)
            else:
                print(what, flush=True)
                return

    async def _ask(self, code: RequestCode, ext: Ext) -> bytes:
        async with await RemotingClient.connect(self._remoting, tls=self._tls) as client:
            return successful_body(await client.request(code, ext=ext))

    async def _register(self) -> None:
        """Keeps the connection: a broker whose last connection ends is dialled, and this one listens on no port."""
        await self._close_session()
        self._session = await RemotingClient.connect(self._remoting, tls=self._tls)
        body = registration_body(self._topics)
        ext = self._seat | write_fields({"haServerAddr": HA_ADDRESS, "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF})
        successful_body(await self._session.request(RequestCode.REGISTER_BROKER, ext=ext, body=body))

    async def _close_session(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _unregister(self) -> None:
        """Over the connection of the registration: another peer may not remove a broker whose connection is open."""
        if self._session is None or not self._session.is_open:
            await self._ask(RequestCode.UNREGISTER_BROKER, self._seat)
        else:
            successful_body(await self._session.request(RequestCode.UNREGISTER_BROKER, ext=self._seat))

    async def _look_up_everywhere(self) -> None:
        if self._session is None or not self._session.is_open:
            await self._register()
        for number in range(CONNECTIONS):
            ext = {"topic": self._topics[number % len(self._topics)], "acceptStandardJsonOnly": "true"}
            check_route(json.loads(await self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext)))

    def _look_up_over_http(self) -> None:
        try:
            url = f"{self._url}/v1/routes/{self._topics[0]}"
            with urllib.request.urlopen(url, timeout=5, context=self._tls) as answer:
                check_route(json.load(answer))
        except urllib.error.HTTPError as error:
            raise NotYetError(f"HTTP {error.code}") from error


if __name__ == "__main__":
    asyncio.run(RoundTrip(*sys.argv[1:4]).run())
