"""What a registration would change, worked out against the table, so that only that travels to the store.

The effect of a registration has its home in `lua/register_broker.lua`. Here is merely left out what cannot change
anything; the script refuses the rest when the group is no longer the one this was worked out against.

How a registration reaches the route table: first whether it changes anything, then only what it changes.
"""

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final

from routebook.errors import InvalidInputError, NotReadyError, NotSeenYetError, RefusedError
from routebook.model.broker import (
    MASTER_ID,
    BrokerGroup,
    Instance,
    Registration,
    RegistrationResult,
    RegistrationStatus,
    after_joining,
)
from routebook.model.names import (
    MAX_NAME_CHARACTERS,
    Caller,
    check_address,
    check_broker_id,
    check_name,
    join_instance_name,
)
from routebook.model.topic import QueueData
from routebook.registry.departures import MinBrokerChanges
from routebook.registry.heartbeat_gaps import Pulse
from routebook.registry.reading import ReadYourWrites
from routebook.replica.replica import Replica
from routebook.replica.table import Table
from routebook.settings.live import LiveSettings
from routebook.store.namespace import Namespace, Status
from routebook.store.registration import QueueDifference, SeatReply, register_broker, touch_broker
from routebook.store.sessions import NO_SESSION, SessionMark


def registration_digest(said: Registration | str, *, effects: str) -> str:
    """Of everything that decides what a repeat would do: header fields and body (or a digest of them), and `effects`,
    the settings that have a say in it.
    """
    if isinstance(said, str):
        return hashlib.blake2b(f"{effects} {said}".encode(), digest_size=16).hexdigest()
    r = said
    header = (
        r.cluster,
        r.broker,
        r.broker_id,
        r.address,
        r.ha_address,
        r.zone,
        r.acting_master,
        r.data_version,
        sorted(r.table_keys) if r.table_keys is not None else None,
        r.filters,
        r.full,
        r.replace_topics,
        r.timeout_ms,
    )
    digest = hashlib.blake2b(f"{effects} {header!r}".encode(), digest_size=16)
    for topic in sorted(r.topics):
        digest.update(f"\n{topic}\t{r.topics[topic].pack()}".encode())
    for topic in sorted(r.mappings):
        digest.update(f"\n{topic}\t{r.mappings[topic]!r}".encode())
    return digest.hexdigest()


def may_publish(group: BrokerGroup | None, registration: Registration) -> bool:
    """Only the master and, of those that know acting masters, the smallest id put topics into the table."""
    if registration.broker_id == MASTER_ID:
        return True
    if registration.acting_master is None:
        return False
    others = (id_ for id_, address in (group.addresses.items() if group else ()) if address != registration.address)
    return all(registration.broker_id <= other for other in others)


def replaces_known_topics(table: Table, registration: Registration) -> bool:
    """Whether topics that the group has already will be put anew: an expectation, on which a staged table rests."""
    group = table.groups.get(registration.broker)
    instance = table.instances.get(registration.instance_name)
    is_seated = group is not None and registration.broker_id in group.addresses
    said = registration.data_version
    return not is_seated or instance is None or said is None or instance.data_version != said


def work_out_difference(table: Table, registration: Registration, *, drops_missing: bool) -> QueueDifference:
    if not may_publish(table.groups.get(registration.broker), registration):
        return QueueDifference()
    known = table.queues_of(registration.broker)
    dropped = _dropped(known, registration) if drops_missing else set()
    new: dict[str, QueueData] = {}
    differing: dict[str, QueueData] = {}
    # A stand-in for the master publishes its topics read-only.
    stands_in = registration.broker_id != MASTER_ID and registration.acting_master
    for topic, queue in registration.topics.items():
        wanted = queue.without_write() if stands_in else queue
        before = known.get(topic)
        if before == wanted:
            continue
        # What goes by its key in the table and comes back by its name is new again.
        (new if before is None or topic in dropped else differing)[topic] = wanted
    own = table.mappings_of_broker(registration.broker)
    mappings = {
        topic: mapping
        for topic, mapping in registration.mappings.items()
        if mapping.bname != registration.broker or own.get(topic) != mapping
    }
    return QueueDifference(new, differing, sorted(dropped - registration.topics.keys()), mappings)


def _dropped(known: Iterable[str], registration: Registration) -> set[str]:
    """Known topics that the table does not name. It is the table's keys that count, not the topics' own names."""
    named = registration.topics.keys() if registration.table_keys is None else registration.table_keys
    return {topic for topic in known if topic not in named}


REGISTER_WITHIN_S: Final = 5.0
"""The group may change under us; each time we wait for the change and start over. One of those who contend gets through
each time, so this bounds bad luck, not work.
"""
LONGEST_PAUSE_S: Final = 0.05

_RESULTS: Final[dict[Status, RegistrationStatus]] = {
    Status.DONE: "changed",
    Status.UNCHANGED: "unchanged",
    Status.TURNED_DOWN: "turned-down",
    Status.REFUSED: "refused",
}


def check_registration(registration: Registration) -> None:
    """Validated before anything starts: Apache's stops in the middle and leaves debris."""
    check_name("cluster", registration.cluster)
    check_name("broker", registration.broker)
    check_broker_id(registration.broker_id)
    check_address("address", registration.address)
    for field, said in (("zone", registration.zone), ("HA address", registration.ha_address)):
        if said and len(said) > MAX_NAME_CHARACTERS:
            raise InvalidInputError(field, f"{len(said)} characters", f"at most {MAX_NAME_CHARACTERS} characters")
    for topic in registration.topics:
        check_name("topic", topic)
    for topic, mapping in registration.mappings.items():
        check_name("topic", topic)
        check_name("host broker of a mapping", mapping.bname)


class Registrar:
    def __init__(
        self,
        namespace: Namespace,
        replica: Replica,
        live: LiveSettings,
        min_broker_changes: MinBrokerChanges,
        pulse: Pulse,
    ) -> None:
        self._namespace = namespace
        self._replica = replica
        self._live = live
        self._min_broker_changes = min_broker_changes
        self._pulse = pulse
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}

    async def touch(
        self, instance: Instance, body_digest: str, caller: Caller, *, session: SessionMark = NO_SESSION
    ) -> RegistrationResult | None:
        """Nearly all traffic of a live fleet, answered before anything of it is parsed: the very registration that this
        seat sent before. None: it has to be read.
        """
        return await self._touched(instance, self._digest(body_digest), caller, session)

    async def register(
        self,
        registration: Registration,
        caller: Caller,
        *,
        body_digest: str | None = None,
        session: SessionMark = NO_SESSION,
    ) -> RegistrationResult:
        """`session` is opened by it: this came over a connection whose end would mean something. `body_digest` stands
        for all that was sent, where a port has digested it as it came, and tried `touch` with it.
        """
        check_registration(registration)
        digest = self._digest(body_digest or registration) if _repeats_itself(registration) else ""
        if digest and body_digest is None and registration.instance_name in self._replica.table.instances:
            touched = await self._touched(registration, digest, caller, session)
            if touched is not None:
                return touched
        sight = ReadYourWrites(self._replica)
        async with self._turn(registration.broker):
            reply = await self._register_in_full(registration, caller, digest, session)
        self._pulse.heard(registration.cluster, registration.broker, registration.broker_id, reply.gap_ms)
        if reply.lowered_seats:
            seats, ha_address = reply.lowered_seats, registration.ha_address
            self._min_broker_changes.tell([after_joining(registration.broker, seats, ha_address)])
        await sight.wait(reply.version)
        if reply.status is Status.REFUSED:
            raise RefusedError(
                f"Broker {registration.broker} id {registration.broker_id} is unknown and sent one topic.",
                advice="Send its whole table first; a single topic is an increment.",
            )
        return _result(reply)

    async def _register_in_full(
        self, registration: Registration, caller: Caller, digest: str, session: SessionMark
    ) -> SeatReply:
        """Until what it was worked out against is what the store has."""
        began, attempts = time.monotonic(), 0
        while True:
            sight = ReadYourWrites(self._replica)
            reply = await self._register_once(registration, caller, digest, session)
            if reply.status is not Status.STALE:
                return reply
            attempts += 1
            if time.monotonic() - began > REGISTER_WITHIN_S:
                raise NotReadyError(
                    f"Broker {registration.broker} changed {attempts} times while it was being registered.",
                    advice="Try again; if it goes on, look for two brokers that share this name and id.",
                )
            await self._catch_up(sight, reply.version)
            # Workers that contend for one group would otherwise go on meeting at the same instant.
            await asyncio.sleep(random.uniform(0, min(attempts * 0.002, LONGEST_PAUSE_S)))  # noqa: S311 - no secret

    async def _register_once(
        self, registration: Registration, caller: Caller, digest: str, session: SessionMark
    ) -> SeatReply:
        if not self._replica.complete:
            raise NotReadyError("The table is not loaded yet.", advice="Try again in a second.")
        settings, table = self._live.current, self._replica.table
        group = table.groups.get(registration.broker)
        drops_missing = registration.replace_topics or (
            settings.delete_topic_with_broker_registration and not registration.mappings
        )
        return await register_broker(
            self._namespace,
            registration,
            work_out_difference(table, registration, drops_missing=drops_missing),
            caller=caller,
            timeout_ms=settings.broker_timeout_ms if registration.timeout_ms is None else registration.timeout_ms,
            digest=digest,
            base=(self._replica.history, group.revision if group else 0),
            replaces_known=replaces_known_topics(table, registration),
            session=session,
        )

    def instance_in(self, cluster: str, broker: str, broker_id: int) -> Instance | None:
        """Who sits there, as far as this worker has seen."""
        group = self._replica.table.groups.get(broker)
        address = group.addresses.get(broker_id, "") if group else ""
        instance = self._replica.table.instances.get(join_instance_name(cluster, address))
        sits_there = instance is not None and (instance.broker, instance.broker_id) == (broker, broker_id)
        return instance if sits_there else None

    def _digest(self, said: Registration | str) -> str:
        settings = self._live.current
        effects = (settings.delete_topic_with_broker_registration, settings.broker_timeout_ms)
        return registration_digest(said, effects=str(effects))

    async def _touched(
        self, who: Registration | Instance, digest: str, caller: Caller, session: SessionMark
    ) -> RegistrationResult | None:
        reply = await touch_broker(self._namespace, who, caller=caller, digest=digest, session=session)
        if reply.status is not Status.UNCHANGED:
            return None
        self._pulse.heard(who.cluster, who.broker, who.broker_id, reply.gap_ms)
        return _result(reply)

    async def _catch_up(self, sight: ReadYourWrites, version: int) -> None:
        """Not reaching it in time is no failure yet: the next attempt looks anew."""
        with suppress(NotSeenYetError, NotReadyError):
            await sight.wait(version, self._live.current.store_timeout_ms)

    @asynccontextmanager
    async def _turn(self, broker: str) -> AsyncIterator[None]:
        """One registration of a group at a time on this worker: they would only make each other start over."""
        lock, waiting = self._turns.get(broker, (asyncio.Lock(), 0))
        self._turns[broker] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._turns.pop(broker)
            if waiting > 1:
                self._turns[broker] = (lock, waiting - 1)


def _repeats_itself(registration: Registration) -> bool:
    """Whether an unchanged group means that the same again changes nothing. Mappings of another host do not belong to
    the group, and a registration without a data version would write them anew each time.
    """
    return registration.data_version is not None or all(
        mapping.bname == registration.broker for mapping in registration.mappings.values()
    )


def _result(reply: SeatReply) -> RegistrationResult:
    return RegistrationResult(
        status=_RESULTS[reply.status],
        version=reply.version,
        incarnation=reply.incarnation,
        master_address=reply.master_address,
        master_ha_address=reply.master_ha_address,
    )
