"""905: tells brokers that their group's smallest id is another one.

At most once, over a connection that is opened for it and closed after it; who cannot be reached is left out, as in
Apache's: brokers ask for their members every second anyway. What one receiver is told arrives in the order in which it
happened.
"""

import asyncio
import logging
import ssl
from collections import deque
from typing import Final

from routebook.client.remoting_client import RemotingClient
from routebook.errors import InvalidInputError, PeerUnavailableError
from routebook.protocol.command import Ext, RequestCode
from routebook.protocol.headers import write_fields
from routebook.registry.registry import MinBrokerChange
from routebook.settings import LiveSettings

_log = logging.getLogger(__name__)

CONNECTIONS_AT_A_TIME: Final = 64
WAITING_PER_RECEIVER: Final = 16
"""Beyond it the oldest is dropped: only the last one says how things are."""


class Notifications:
    def __init__(self, live: LiveSettings) -> None:
        settings = live.current
        self._timeout_ms = settings.connect_timeout_ms
        self._tls = client_context() if settings.tls_client_enable else None
        self._slots = asyncio.Semaphore(CONNECTIONS_AT_A_TIME)
        self._waiting: dict[str, deque[Ext]] = {}
        """By receiver; there while a task serves it."""
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, change: MinBrokerChange) -> None:
        """Returns at once."""
        ext = write_fields(
            {
                "minBrokerId": change.min_id,
                "minBrokerAddr": change.min_address,
                "offlineBrokerAddr": change.offline_address,
                "haBrokerAddr": change.ha_address,
            }
        )
        _log.info("Group %s: telling %s that its smallest id is %d.", change.broker, change.receivers, change.min_id)
        for receiver in change.receivers:
            if receiver in self._waiting:
                self._waiting[receiver].append(ext)
            else:
                self._waiting[receiver] = deque([ext], maxlen=WAITING_PER_RECEIVER)
                task = asyncio.create_task(self._serve(receiver))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, receiver: str) -> None:
        waiting = self._waiting[receiver]
        try:
            while waiting:  # Something may have come while the last connection was being closed.
                async with (
                    self._slots,
                    await RemotingClient.connect(receiver, timeout_ms=self._timeout_ms, tls=self._tls) as client,
                ):
                    while waiting:
                        await client.send_oneway(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext=waiting.popleft())
        except (PeerUnavailableError, InvalidInputError) as error:
            _log.info("%s is not told of its group's smallest id: %s", receiver, error)
        finally:
            del self._waiting[receiver]


def client_context() -> ssl.SSLContext:
    """Without looking at the broker's certificate, as Apache's default is: brokers sign theirs themselves."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
