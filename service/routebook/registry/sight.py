"""When a write is visible here. A write is answered only when this worker's own table shows it."""

from typing import Final

from routebook.replica.replica import Replica

VISIBLE_WITHIN_MS: Final = 5_000
"""The change stream brings a write within milliseconds; a table that is being loaded anew takes seconds."""


class ReadYourWrites:
    """What this worker knew when a write began.

    Versions only rise within one history, so an answer below what was known already comes from another one: the store
    has lost its data, and this worker has not noticed yet.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._history = replica.history
        self._version = replica.version

    async def wait(self, version: int, timeout_ms: int = VISIBLE_WITHIN_MS) -> int:
        """NotSeenYetError when it takes too long."""
        if version < self._version:
            await self._replica.wait_for_another_history(self._history, timeout_ms)
        await self._replica.wait_for(version, timeout_ms)
        return version
