"""A minimal worker without a replica: it tries `touch_broker`, then computes the registration against the store.

It takes the place of the registry. So a difference found with it is a fault of a script or of its Python function.
A difference found only with the registry is a fault of the registry.
"""

import asyncio
import hashlib
from collections.abc import Mapping

from routebook.model.broker import (
    DEFAULT_TIMEOUT_MS,
    MASTER_ID,
    BrokerGroup,
    MinBrokerChange,
    QueueData,
    Registration,
    RegistrationResult,
    min_broker_joined,
)
from routebook.model.names import Caller
from routebook.replica.load import in_steps
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
        self.stale_replies = 0
        self.notices: list[MinBrokerChange] = []

    async def register(self, registration: Registration) -> RegistrationResult:
        digest = hashlib.sha256(f"{registration!r} {self.deletes_topics}".encode()).hexdigest()[:32]
        if may_be_touched(registration):
            reply = await touch_broker(self.namespace, registration, caller=CALLER, digest=digest)
        else:
            reply = await self._register_in_full(registration, digest)
        while reply.status is Status.STALE:
            reply = await self._register_in_full(registration, digest)
            self.stale_replies += reply.status is Status.STALE
            await asyncio.sleep(0)
        if reply.lowered_seats:
            self.notices.append(min_broker_joined(registration.broker, reply.lowered_seats, registration.ha_address))
        return RegistrationResult(
            status=RESULTS[reply.status],  # type: ignore[arg-type]
            version=reply.version,
            incarnation=reply.incarnation,
            master_address=reply.master_address,
            master_ha_address=reply.master_ha_address,
        )

    async def set_deletion_option(self, *, on: bool) -> None:
        self.deletes_topics = on

    async def _register_in_full(self, registration: Registration, digest: str) -> SeatReply:
        history = (await open_namespace(self.namespace)).history
        hosts = {mapping.bname for mapping in registration.mappings.values()}
        images = await read_groups(
            self.namespace, {registration.broker: None, **dict.fromkeys(hosts - {registration.broker})}
        )
        image = images[registration.broker]
        known = {topic: data for topic, data in image.queues.items() if data is not None}
        return await register_broker(
            self.namespace,
            registration,
            QueueDifference(
                *difference(registration, image.group, known, deletes=self._deletes(registration)),
                mappings={
                    topic: mapping
                    for topic, mapping in registration.mappings.items()
                    if images[mapping.bname].mappings.get(topic) != mapping or mapping.bname != registration.broker
                },
                known=known,
            ),
            caller=CALLER,
            timeout_ms=DEFAULT_TIMEOUT_MS if registration.timeout_ms is None else registration.timeout_ms,
            digest=digest,
            base=(history, image.group.revision if image.group else 0),
            replaces_known=True,
            run_steps=in_steps,
        )

    def _deletes(self, registration: Registration) -> bool:
        return registration.replace_topics or (self.deletes_topics and not registration.mappings)


def may_be_touched(registration: Registration) -> bool:
    """A mapping under another group's name can change without changing the revision of this group."""
    return registration.data_version is not None or all(
        mapping.bname == registration.broker for mapping in registration.mappings.values()
    )


def difference(
    registration: Registration, group: BrokerGroup | None, known: Mapping[str, QueueData], *, deletes: bool
) -> tuple[dict[str, QueueData], dict[str, QueueData], list[str]]:
    """New, changed and removed topics. A topic that is removed by its key and registered by its name counts as new."""
    seats = group.addresses if group else {}
    ids = {i for i, address in seats.items() if address != registration.address} | {registration.broker_id}
    is_slave = registration.broker_id != MASTER_ID
    is_prime = is_slave and registration.acting_master is not None and registration.broker_id == min(ids)
    is_read_only = is_prime and registration.acting_master is True
    wanted = {topic: data.without_write() if is_read_only else data for topic, data in registration.topics.items()}
    keys = frozenset(registration.topics) if registration.table_keys is None else registration.table_keys
    removed = {topic for topic in known if topic not in keys} if deletes else set()
    new = {t: data for t, data in wanted.items() if t not in known or (t in removed and known[t] != data)}
    changed = {t: data for t, data in wanted.items() if t in known and t not in removed and known[t] != data}
    return new, changed, sorted(removed - set(wanted))
