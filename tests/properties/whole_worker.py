"""A worker without ports: replica, registry, and settings that change at run time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from routebook.errors import RefusedError
from routebook.model.broker import MinBrokerChange, Registration, RegistrationResult
from routebook.registry.registry import Registry
from routebook.replica.replica import Replica
from routebook.replica.table import Table
from routebook.settings.live import LiveSettings
from routebook.settings.loading import load
from routebook.store.namespace import Namespace
from routebook.store.workers import open_namespace
from tests.properties.plain_worker import CALLER
from tests.properties.states import GroupState, InstanceState, State
from tests.support.registering import register

TIMEOUT_MS = 30_000


class WholeWorker:
    def __init__(self, namespace: Namespace, registry: Registry, replica: Replica) -> None:
        self.namespace = namespace
        self.registry = registry
        self.replica = replica
        self.notices: list[MinBrokerChange] = []
        registry.min_broker_changes.listener = self._record

    def _record(self, change: MinBrokerChange) -> None:
        self.notices.append(change)

    async def register(self, registration: Registration) -> RegistrationResult:
        try:
            return await register(self.registry, registration)
        except RefusedError:
            return RegistrationResult("refused", self.registry.replica.version)

    async def set_deletion_option(self, *, on: bool) -> None:
        await self.registry.change_setting("delete_topic_with_broker_registration", str(on).lower(), CALLER)

    async def catch_up(self) -> None:
        version = int(await self.namespace.client.call("HGET", self.namespace.keys.meta, "version") or 0)
        await self.replica.wait_for(version, TIMEOUT_MS)


@asynccontextmanager
async def whole_worker(namespace: Namespace, name: str = "worker-1") -> AsyncIterator[WholeWorker]:
    live = LiveSettings(load({"redis_url": "redis://127.0.0.1:1", "notify_min_broker_id_changed": "true"}))
    await open_namespace(namespace)
    replica = Replica(namespace, live)
    feed = asyncio.create_task(replica.run())
    try:
        await replica.wait_complete(TIMEOUT_MS)
        yield WholeWorker(namespace, Registry(namespace, replica, live, worker=name), replica)
    finally:
        feed.cancel()
        await asyncio.gather(feed, return_exceptions=True)


def state_of_table(table: Table) -> State:
    """The state of a replica, for comparison with the store. It has no filters of removed instances."""
    groups = {
        name: GroupState(group.cluster, group.zone, group.acting_master, dict(group.addresses))
        for name, group in table.groups.items()
    }
    instances = {
        instance_name: InstanceState(
            instance.broker,
            instance.broker_id,
            instance.incarnation,
            instance.timeout_ms,
            instance.ha_address,
            instance.data_version,
        )
        for instance_name, instance in table.instances.items()
    }
    names = table.names()
    return State(
        clusters={cluster: set(names) for cluster, names in table.clusters.items()},
        groups=groups,
        queues={name: dict(table.queues_of(name)) for name in names if table.queues_of(name)},
        mappings={name: dict(table.mappings_of_broker(name)) for name in names if table.mappings_of_broker(name)},
        instances=instances,
        filters={name: instance.filters for name, instance in table.instances.items() if instance.filters},
        kv={namespace: dict(values) for namespace, values in table.kv.items()},
    )
