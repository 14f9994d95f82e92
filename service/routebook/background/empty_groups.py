"""Removal of groups without seats, for the leader.

RocketMQ's rules create a group even for a registration that is refused (a single topic of an unknown broker), and such
a group has no broker that could expire. It is removed when it has been empty for `empty_group_timeout_ms`, so that
refused registrations cost nothing for longer than that.
"""

import logging
import time
from typing import Final

from routebook.model.names import Caller
from routebook.replica.replica import Replica
from routebook.settings.live import LiveSettings
from routebook.store.administration import remove_empty_groups
from routebook.store.namespace import Namespace, Status

_log = logging.getLogger(__name__)

GROUPS_PER_RUN: Final = 50
"""A script blocks the store for some tenths of a millisecond for each group, as it looks through all clusters."""


class EmptyGroups:
    def __init__(self, namespace: Namespace, replica: Replica, live: LiveSettings, worker: str) -> None:
        self._namespace = namespace
        self._replica = replica
        self._live = live
        self._caller = Caller(worker)
        self._empty_since: dict[str, tuple[int, float]] = {}
        """Revision of the group, and when it was first seen without seats."""

    async def remove(self, lease: str) -> Status:
        """Called once per scan. FENCED: this worker no longer leads."""
        if self._replica.is_recovering or not self._replica.complete:
            self._empty_since.clear()
            return Status.UNCHANGED
        now, timeout_s = time.monotonic(), self._live.current.empty_group_timeout_ms / 1000
        self._empty_since = {
            name: known if (known := self._empty_since.get(name)) and known[0] == group.revision
            else (group.revision, now)
            for name, group in self._replica.table.groups.items()
            if not group.addresses
        }  # fmt: skip
        due = [(name, revision) for name, (revision, since) in self._empty_since.items() if now - since >= timeout_s]
        for start in range(0, len(due), GROUPS_PER_RUN):
            part = due[start : start + GROUPS_PER_RUN]
            outcome = await remove_empty_groups(self._namespace, lease, part, caller=self._caller)
            if outcome.status is Status.FENCED:
                return Status.FENCED
            if outcome.count:
                _log.info("Removed %d groups that had no broker for %.0f s.", outcome.count, timeout_s)
        return Status.UNCHANGED
