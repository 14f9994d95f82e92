"""Checks the store's eviction policy, memory, role and disk regularly; the start of a worker checks them only once.

An operator may change the configuration of a running store, and a failover may lead to a server with another
configuration. An alarm is logged when it begins and when it ends; status, metrics and `routebook doctor` show it
meanwhile.
"""

import asyncio
import logging

from routebook.errors import NotPrimaryError, StoreError
from routebook.observability.metrics import Metrics
from routebook.registry.status import StoreHealth
from routebook.settings.live import LiveSettings
from routebook.store.checks import Finding, find_alarms, read_state
from routebook.store.connection.client import StoreClient

_log = logging.getLogger(__name__)


class StoreAlarms:
    def __init__(self, client: StoreClient, live: LiveSettings, metrics: Metrics, health: StoreHealth) -> None:
        self._client = client
        self._live = live
        self._metrics = metrics
        self._health = health

    async def run(self) -> None:
        while True:
            try:
                self._update(find_alarms(await read_state(self._client)))
            except NotPrimaryError as error:
                self._update({"role": Finding("error", "role", error.message, error.advice)})
            except StoreError as error:
                # An alarm stays while the store is out of reach, which other parts of the worker report.
                _log.debug("The store cannot be checked: %s", error)
            await asyncio.sleep(self._live.current.store_check_interval_ms / 1000)

    def _update(self, found: dict[str, Finding]) -> None:
        for kind, finding in found.items():
            if kind not in self._health.alarms:
                _log.error("Store alarm (%s): %s %s", kind, finding.message, finding.advice)
        for kind in self._health.alarms:
            if kind not in found:
                _log.warning("The store alarm (%s) has ended.", kind)
        self._health.alarms = {kind: f"{finding.message} {finding.advice}" for kind, finding in found.items()}
        self._metrics.store_alarms(found.keys())
