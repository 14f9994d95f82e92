"""Request 905: notifies brokers that the smallest broker id of their group has changed.

At most once, over a connection that is opened and closed for it. A broker that cannot be reached is left out, as by
RocketMQ; brokers ask for the members of their group every second anyway. The notifications for one receiver arrive in
the order of the changes.
"""

import asyncio
import logging
import ssl
from collections import deque
from typing import Final

from routebook.errors import InvalidInputError, PeerUnavailableError
from routebook.protocol.frame import Ext, RequestCode
from routebook.protocol.headers import write_fields
from routebook.registry.registry import MinBrokerChange
from routebook.remoting_client import RemotingClient
from routebook.settings import LiveSettings

_log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64
WAITING_PER_RECEIVER: Final = 16
"""Beyond it the oldest is dropped; only the last one describes the current state."""


class Notifications:
    def __init__(self, live: LiveSettings) -> None:
        settings = live.current
        self._timeout_ms = settings.connect_timeout_ms
        self._tls = client_context() if settings.tls_client_enable else None
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._waiting: dict[str, deque[Ext]] = {}
        """By receiver, as long as a task sends to it."""
        self._tasks: set[asyncio.Task[None]] = set()

    def notify(self, change: MinBrokerChange) -> None:
        """Returns at once."""
        ext = write_fields(
            {
                "minBrokerId": change.min_id,
                "minBrokerAddr": change.min_address,
                "offlineBrokerAddr": change.offline_address,
                "haBrokerAddr": change.ha_address,
            }
        )
        _log.info("Group %s: notifying %s that the smallest id is %d.", change.broker, change.receivers, change.min_id)
        for receiver in change.receivers:
            if receiver in self._waiting:
                self._waiting[receiver].append(ext)
            else:
                self._waiting[receiver] = deque([ext], maxlen=WAITING_PER_RECEIVER)
                task = asyncio.create_task(self._send(receiver))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, receiver: str) -> None:
        waiting = self._waiting[receiver]
        try:
            while waiting:  # More may have been added while the last connection was being closed.
                async with (
                    self._slots,
                    await RemotingClient.connect(receiver, timeout_ms=self._timeout_ms, tls=self._tls) as client,
                ):
                    while waiting:
                        await client.send_oneway(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext=waiting.popleft())
        except (PeerUnavailableError, InvalidInputError) as error:
            _log.info("%s cannot be notified of the smallest id of its group: %s", receiver, error)
        finally:
            del self._waiting[receiver]


def client_context() -> ssl.SSLContext:
    """Does not verify the broker's certificate, as is RocketMQ's default: brokers have self-signed ones."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
