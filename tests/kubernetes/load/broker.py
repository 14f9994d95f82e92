"""A broker that registers over and over, and listens where it says that it does: workers dial it when a connection of
it ends.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final

from routebook.model.broker import DataVersion
from routebook.model.topic import PERM_READ_WRITE, QueueData
from routebook.protocol.command import RequestCode, ResponseCode
from routebook.simulate.broker import registration_body, registration_ext
from tests.kubernetes.load.caller import FOLLOWING, Caller, CallError
from tests.kubernetes.load.record import Registration

CLUSTER: Final = "load"
TIMEOUT_MS: Final = 30_000
"""It asks to be taken for gone after this silence. With a registration every five seconds that is a sixth, where
RocketMQ's own brokers have a quarter (30 s, 120 s): a wrong removal shows the sooner.
"""
ANSWER_S: Final = 6.0
"""Of 24 s that RocketMQ's brokers wait, the same part."""


class LoadBroker:
    def __init__(self, name: str, host: str, name_servers: Sequence[str], heard: list[Registration]) -> None:
        """`heard` gets every registration."""
        self.name = name
        self.address = ""
        """Known when it listens."""
        self._host = host
        self._heard = heard
        self._caller = Caller(name_servers, version=FOLLOWING, timeout_s=ANSWER_S)
        self._listener: asyncio.Server | None = None
        self._version = DataVersion(0, int(time.time() * 1000), 1)

    async def listen(self) -> None:
        self._listener = await asyncio.start_server(_visited, self._host, 0)
        self.address = f"{self._host}:{self._listener.sockets[0].getsockname()[1]}"

    async def run(self, period_s: float, first_after_s: float) -> None:
        await asyncio.sleep(first_after_s)
        while True:
            began = time.monotonic()
            await self.register()
            await asyncio.sleep(max(began + period_s - time.monotonic(), 0))

    async def unregister(self) -> None:
        """In order, as a broker that is stopped: six that only vanished would be held for an operator."""
        ext = {"brokerName": self.name, "brokerAddr": self.address, "clusterName": CLUSTER, "brokerId": "0"}
        # A service that is away at the end of a failed test must not hide why it failed.
        with contextlib.suppress(CallError):
            await self._caller.ask(RequestCode.UNREGISTER_BROKER, ext)
        self._caller.hang_up()
        if self._listener:
            self._listener.close()

    async def register(self) -> bool:
        queues = QueueData(4, 4, PERM_READ_WRITE, 0)
        # Never one alone: a single topic of an unknown broker is refused.
        body = registration_body(self._version, {self.name: queues, f"{self.name}-other": queues})
        ext = registration_ext(
            body, cluster=CLUSTER, broker=self.name, broker_id=0, address=self.address, timeout_ms=TIMEOUT_MS
        )
        began = time.monotonic()
        try:
            response = await self._caller.ask(RequestCode.REGISTER_BROKER, ext, body)
            how = "ok" if response.code == ResponseCode.SUCCESS else str(response.code)
        except CallError as error:
            how = error.how
        self._heard.append(Registration(began, time.monotonic(), self.name, how))
        return how == "ok"


async def _visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        await reader.read()
    writer.close()
