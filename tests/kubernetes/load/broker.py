"""A broker that registers repeatedly. It listens at its address, since workers dial brokers that lost a connection."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final

from routebook.model.broker import PERM_READ_WRITE, DataVersion, QueueData
from routebook.protocol.frame import RequestCode, ResponseCode
from routebook.simulate.broker import registration_body, registration_ext
from tests.kubernetes.load.caller import GO_AWAY_VERSION, Caller, CallError
from tests.kubernetes.load.record import Registration

CLUSTER: Final = "load"
TIMEOUT_MS: Final = 30_000
"""The heartbeat timeout it registers, six times its period of 5 s. RocketMQ's brokers have 120 s for a period of 30 s;
with the shorter timeout a wrong removal shows sooner.
"""
ANSWER_S: Final = 6.0
"""How long it waits for an answer; RocketMQ's brokers wait 24 s."""


class LoadBroker:
    def __init__(self, name: str, host: str, name_servers: Sequence[str], registrations: list[Registration]) -> None:
        """Appends every registration to `registrations`."""
        self.name = name
        self.address = ""
        """Set when it listens."""
        self._host = host
        self._registrations = registrations
        self._caller = Caller(name_servers, version=GO_AWAY_VERSION, timeout_s=ANSWER_S)
        self._listener: asyncio.Server | None = None
        self._version = DataVersion(0, int(time.time() * 1000), 1)

    async def listen(self) -> None:
        self._listener = await asyncio.start_server(_accept, self._host, 0)
        self.address = f"{self._host}:{self._listener.sockets[0].getsockname()[1]}"

    async def run(self, period_s: float, first_after_s: float) -> None:
        await asyncio.sleep(first_after_s)
        while True:
            start = time.monotonic()
            await self.register()
            await asyncio.sleep(max(start + period_s - time.monotonic(), 0))

    async def unregister(self) -> None:
        """As a broker does when it is stopped. Six brokers that vanish would be held as a mass expiry."""
        ext = {"brokerName": self.name, "brokerAddr": self.address, "clusterName": CLUSTER, "brokerId": "0"}
        # If a test failed, the service may be gone; that must not hide the test's own error.
        with contextlib.suppress(CallError):
            await self._caller.ask(RequestCode.UNREGISTER_BROKER, ext)
        self._caller.close()
        if self._listener:
            self._listener.close()

    async def register(self) -> bool:
        queues = QueueData(4, 4, PERM_READ_WRITE, 0)
        # Two topics, because a registration of an unknown broker with a single topic is refused.
        body = registration_body(self._version, {self.name: queues, f"{self.name}-other": queues})
        ext = registration_ext(
            body, cluster=CLUSTER, broker=self.name, broker_id=0, address=self.address, timeout_ms=TIMEOUT_MS
        )
        start = time.monotonic()
        try:
            response = await self._caller.ask(RequestCode.REGISTER_BROKER, ext, body)
            outcome = "ok" if response.code == ResponseCode.SUCCESS else str(response.code)
        except CallError as error:
            outcome = error.reason
        self._registrations.append(Registration(start, time.monotonic(), self.name, outcome))
        return outcome == "ok"


async def _accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        await reader.read()
    writer.close()
