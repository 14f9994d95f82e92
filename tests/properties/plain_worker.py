"""A worker in its plainest form: touch first, then the whole registration, worked out against the store.

It stands where the registry stands in the product, without a replica: so a disagreement found with it lies in
a script or its Python function, and one found only with the registry lies in the registry.
"""

import asyncio
import hashlib
from collections.abc import Mapping

from routebook.model.broker import (
    DEFAULT_TIMEOUT_MS,
    MASTER_ID,
    BrokerGroup,
    MinBrokerChange,
    Registration,
    RegistrationResult,
    after_joining,
)
from routebook.model.names import Caller
from routebook.model.topic import QueueData
from routebook.store.namespace import Namespace, Status
from routebook.store.reads import read_groups
from routebook.store.registration import QueueDifference, SeatReply, register_broker, touch_broker
from routebook.store.workers import open_namespace

CALLER = Caller("test", "127.0.0.1:1")
RESULTS: Mapping[Status, str] = {
    Status.DONE: "changed",
    Status.UNCHANGED: "unchanged",
    Status.REFUSED: "refused",
    Status.TURNED_DOWN: "turned-down",
}


class PlainWorker:
    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.deletes_topics = False
        self.started_over = 0
        self.notices: list[MinBrokerChange] = []

    async def register(self, said: Registration) -> RegistrationResult:
        digest = hashlib.sha256(f"{said!r} {self.deletes_topics}".encode()).hexdigest()[:32]
        if may_be_touched(said):
            reply = await touch_broker(self.namespace, said, caller=CALLER, digest=digest)
        else:
            reply = await self._register_in_full(said, digest)
        while reply.status is Status.STALE:
            reply = await self._register_in_full(said, digest)
            self.started_over += reply.status is Status.STALE
            await asyncio.sleep(0)
        if reply.lowered_seats:
            self.notices.append(after_joining(said.broker, reply.lowered_seats, said.ha_address))
        return RegistrationResult(
            status=RESULTS[reply.status],  # type: ignore[arg-type]
            version=reply.version,
            incarnation=reply.incarnation,
            master_address=reply.master_address,
            master_ha_address=reply.master_ha_address,
        )

    async def set_deleting(self, *, on: bool) -> None:
        self.deletes_topics = on

    async def _register_in_full(self, said: Registration, digest: str) -> SeatReply:
        history = (await open_namespace(self.namespace)).history
        hosts = {mapping.bname for mapping in said.mappings.values()}
        images = await read_groups(self.namespace, {said.broker: None, **dict.fromkeys(hosts - {said.broker})})
        image = images[said.broker]
        known = {topic: data for topic, data in image.queues.items() if data is not None}
        return await register_broker(
            self.namespace,
            said,
            QueueDifference(
                *difference(said, image.group, known, deletes=self._deletes(said)),
                mappings={
                    topic: mapping
                    for topic, mapping in said.mappings.items()
                    if images[mapping.bname].mappings.get(topic) != mapping or mapping.bname != said.broker
                },
            ),
            caller=CALLER,
            timeout_ms=DEFAULT_TIMEOUT_MS if said.timeout_ms is None else said.timeout_ms,
            digest=digest,
            base=(history, image.group.revision if image.group else 0),
            replaces_known=True,
        )

    def _deletes(self, said: Registration) -> bool:
        return said.replace_topics or (self.deletes_topics and not said.mappings)


def may_be_touched(said: Registration) -> bool:
    """What stands under another group's name may have changed without this group's revision knowing."""
    return said.data_version is not None or all(mapping.bname == said.broker for mapping in said.mappings.values())


def difference(
    said: Registration, group: BrokerGroup | None, known: Mapping[str, QueueData], *, deletes: bool
) -> tuple[dict[str, QueueData], dict[str, QueueData], list[str]]:
    """New, differing and dropped topics. What goes by its key and comes back by its name counts as new."""
    held = group.addresses if group else {}
    ids = {i for i, address in held.items() if address != said.address} | {said.broker_id}
    is_slave = said.broker_id != MASTER_ID
    is_prime = is_slave and said.acting_master is not None and said.broker_id == min(ids)
    only_reads = is_prime and said.acting_master is True
    wanted = {topic: data.without_write() if only_reads else data for topic, data in said.topics.items()}
    keys = frozenset(said.topics) if said.table_keys is None else said.table_keys
    gone = {topic for topic in known if topic not in keys} if deletes else set()
    new = {t: data for t, data in wanted.items() if t not in known or (t in gone and known[t] != data)}
    differing = {t: data for t, data in wanted.items() if t in known and t not in gone and known[t] != data}
    return new, differing, sorted(gone - set(wanted))
