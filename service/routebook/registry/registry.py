"""The registry: every verb that a port calls.

Lookups are answered from memory (`reading`), questions of operators from the store (`inspection`). Each write is one
script in the store, and is answered only when this worker's own table shows it.
"""

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from routebook import __version__
from routebook.errors import (
    ForbiddenError,
    NotFoundError,
    NotReadyError,
    NotSeenYetError,
    RefusedError,
    StoreUnavailableError,
)
from routebook.model.broker import (
    DataVersion,
    Instance,
    MinBrokerChange,
    Registration,
    RegistrationResult,
    RegistrationStatus,
    Seat,
    min_broker_joined,
)
from routebook.model.names import Caller, join_instance_name
from routebook.observability.audit import Audit
from routebook.observability.metrics import Metrics
from routebook.registry.administration import Administration, Affected
from routebook.registry.heartbeat_gaps import HeartbeatGaps
from routebook.registry.past_tables import PastTables
from routebook.registry.registration import (
    LongWork,
    check_registration_in_steps,
    is_repeatable,
    limit_error,
    replaces_known_topics,
    table_limits,
    work_out_difference,
)
from routebook.registry.removals import MinBrokerChanges, RemovalQueue
from routebook.registry.sessions import SessionConnection, Sessions
from routebook.registry.status import ExpiryState
from routebook.replica.feed import IN_TOUCH_MS
from routebook.replica.recovery import is_seat_carried
from routebook.replica.replica import ReadYourWrites, Replica
from routebook.settings.live import LiveSettings
from routebook.store.namespace import Namespace, Status
from routebook.store.registration import HeartbeatReply, SeatReply, heartbeat_broker, register_broker, touch_broker
from routebook.store.removal import Cause, Removal, release_expiry
from routebook.store.sessions import SessionMark

__all__ = ["Affected", "Caller", "MinBrokerChange", "Registry", "SessionConnection"]

DIGEST_STEP_BYTES: Final = 1024 * 1024
"""As much is hashed in less than a millisecond."""
DIGEST_LETTERS: Final = 32
"""128 bits are enough, and short enough to keep with every instance."""
REGISTER_WITHIN_S: Final = 5.0
"""A group may change during its registration, which then starts over. One of the competing registrations succeeds each
time, so this limits bad luck, not work.
"""
LONGEST_PAUSE_S: Final = 0.05
SEATS: Final = "See docs/security.md about seats and the setting remoting_admin."
Carrier = SessionConnection | None

_RESULTS: Final[dict[Status, RegistrationStatus]] = {
    Status.DONE: "changed",
    Status.UNCHANGED: "unchanged",
    Status.TURNED_DOWN: "turned-down",
    Status.REFUSED: "refused",
}


class Registry(Administration):
    def __init__(
        self, namespace: Namespace, replica: Replica, live: LiveSettings, *, worker: str, metrics: Metrics | None = None
    ) -> None:
        super().__init__(namespace, replica, live, worker=worker)
        metrics = metrics or Metrics()
        self.audit = Audit(metrics)
        self.min_broker_changes = MinBrokerChanges(live)
        self._removals = RemovalQueue(namespace, replica, live, self.min_broker_changes, metrics)
        self.sessions = Sessions(namespace, replica, live, self._removals, metrics, worker=worker)
        self.heartbeat_gaps = HeartbeatGaps(namespace, live, worker)
        self.past = PastTables(namespace)
        self.long_work = LongWork()
        self.on_suspected_damage: Callable[[str], None] = lambda _: None
        """Called when the store's state of a group is not the replica's, although neither is behind the other."""
        self._hashing = LongWork()
        """Has turns of its own: whether a registration has changed must not wait until others are decoded."""
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}

    def check_store_answers(self) -> None:
        """Raises when the store has been silent for longer than a call may take. Another call would only wait for its
        timeout, and delay the requests behind it. The worker's own lease and the feed keep trying.
        """
        age_ms = self._namespace.client.answer_age_ms()
        if age_ms > IN_TOUCH_MS + self.live.current.store_timeout_ms:
            raise StoreUnavailableError(
                f"The store has not answered for {age_ms // 1000} s.",
                advice="Try again when it is back; `routebook doctor` says what is wrong with it.",
            )

    # -- brokers

    async def register(
        self,
        seat: Seat,
        sent: Sequence[bytes],
        read_body: Callable[[], Awaitable[Registration]],
        caller: Caller,
        *,
        connection: SessionConnection | None = None,
    ) -> RegistrationResult:
        """Registers a broker. When it repeats its last registration, as nearly all do, only its deadline moves.

        `sent` is every part of the request that decides what it does; the registration digest is computed from it. The
        body is parsed, by `read_body`, only when that digest is not the stored one. An empty `sent` means that the
        registration is not remembered. With a `connection` a session is opened, so that the end of the connection can
        remove the broker.
        """
        digest = ""
        if sent and (seated := self._instance_in(seat)) is not None:
            digest = await self._hashing.run(self._registration_digest(sent))
            instance_name, instance = seated
            with self.sessions.opening(connection, instance_name) as session:
                # Inside, because a broker that is refused here has to be moved to a worker that reaches the store.
                self.check_store_answers()
                reply = await touch_broker(
                    self._namespace, instance, caller=caller, digest=digest, session=session.mark
                )
                session.opened(reply.incarnation)
            if reply.status is Status.UNCHANGED:
                self.heartbeat_gaps.record(seat, reply.gap_ms)
                return _result(reply)
        registration = await read_body()
        if sent and not digest:
            # Only now: a peer whose bodies are refused does not have them hashed as well.
            digest = await self._hashing.run(self._registration_digest(sent))
        with self.sessions.opening(connection, registration.instance_name) as session:
            self.check_store_answers()
            result = await self._register_in_full(
                registration, caller, digest=digest, session=session.mark, connection=connection
            )
            session.opened(result.incarnation)
        return result

    def _registration_digest(self, sent: Sequence[bytes]) -> Generator[None, None, str]:
        """Also covers the release and the settings that change what a registration does.

        SHA-256, because processors have instructions for it: 10,000 topics take 1 ms, against 2 to 3 ms with BLAKE2.
        """
        settings = self.live.current
        effects = (__version__, settings.delete_topic_with_broker_registration, settings.broker_timeout_ms)
        digest = hashlib.sha256(repr(effects).encode())
        for part in sent:
            digest.update(b"%d:" % len(part))
            view = memoryview(part)
            for at in range(0, len(part), DIGEST_STEP_BYTES):
                if at:
                    yield
                digest.update(view[at : at + DIGEST_STEP_BYTES])
        return digest.hexdigest()[:DIGEST_LETTERS]

    def _instance_in(self, seat: Seat) -> tuple[str, Instance] | None:
        """The instance that holds the seat and its name, as far as this worker has seen."""
        table = self.replica.table
        group = table.groups.get(seat.broker)
        address = group.addresses.get(seat.broker_id, "") if group else ""
        name = join_instance_name(seat.cluster, address)
        instance = table.instances.get(name)
        if instance is None or (instance.broker, instance.broker_id) != (seat.broker, seat.broker_id):
            return None
        return name, instance

    async def _register_in_full(
        self, registration: Registration, caller: Caller, *, digest: str, session: SessionMark, connection: Carrier
    ) -> RegistrationResult:
        await self.long_work.run(check_registration_in_steps(registration, self.live.current))
        write = ReadYourWrites(self.replica)
        async with self._turn(registration.broker):
            reply = await self._register_until_base_holds(
                registration,
                caller,
                digest=digest if is_repeatable(registration) else "",
                session=session,
                connection=connection,
            )
        if reply.status is Status.LIMITED:
            raise limit_error(reply.exceeded, registration, self.live.current)
        self.heartbeat_gaps.record(registration.seat, reply.gap_ms)
        if reply.lowered_seats:
            seats, ha_address = reply.lowered_seats, registration.ha_address
            self.min_broker_changes.notify([min_broker_joined(registration.broker, seats, ha_address)])
        await write.wait(reply.version)
        if reply.status is Status.REFUSED:
            raise RefusedError(
                f"Broker {registration.broker} id {registration.broker_id} is unknown and sent one topic.",
                advice="Send its whole table first; a single topic is an increment.",
            )
        return _result(reply)

    async def _register_until_base_holds(
        self, registration: Registration, caller: Caller, *, digest: str, session: SessionMark, connection: Carrier
    ) -> SeatReply:
        """Starts over until the store still has the state of the group that the registration was compared with."""
        began, attempts = time.monotonic(), 0
        while True:
            write = ReadYourWrites(self.replica)
            reply = await self._register_once(
                registration, caller, digest=digest, session=session, connection=connection
            )
            if reply.status is not Status.STALE:
                return reply
            attempts += 1
            if reply.version == self.replica.version:
                self.on_suspected_damage(registration.broker)
            if time.monotonic() - began > REGISTER_WITHIN_S:
                raise NotReadyError(
                    f"Broker {registration.broker} changed {attempts} times while it was being registered.",
                    advice="Try again; if it goes on, look for two brokers that share this name and id.",
                )
            # Not having seen the version in time is no failure yet: the next attempt compares again.
            with suppress(NotSeenYetError, NotReadyError):
                await write.wait(reply.version, self.live.current.store_timeout_ms)
            # Workers that compete for one group would otherwise keep meeting at the same instant.
            pause_s = min(attempts * 0.002, LONGEST_PAUSE_S)
            await asyncio.sleep(random.uniform(0, pause_s))  # noqa: S311 - no secret

    async def _register_once(
        self, registration: Registration, caller: Caller, *, digest: str, session: SessionMark, connection: Carrier
    ) -> SeatReply:
        if not self.replica.complete:
            raise NotReadyError("The table is not loaded yet.", advice="Try again in a second.")
        epoch = await self.replica.wait_verified(self.live.current.store_timeout_ms)
        settings, table = self.live.current, self.replica.table
        group = table.groups.get(registration.broker)
        drops_missing = registration.replace_topics or (
            settings.delete_topic_with_broker_registration and not registration.mappings
        )
        if self._would_replace_late(registration, connection):
            return SeatReply(Status.TURNED_DOWN, self.replica.version, "", "", "")
        # Read before the comparison, which other work may interrupt: the script refuses a base that is outdated. So the
        # table in which the holder of the seat was looked up above is not outdated either.
        base = (self.replica.history, group.revision if group else 0)
        difference = await self.long_work.run(work_out_difference(table, registration, drops_missing=drops_missing))
        return await register_broker(
            self._namespace,
            registration,
            difference,
            caller=caller,
            timeout_ms=settings.broker_timeout_ms if registration.timeout_ms is None else registration.timeout_ms,
            digest=digest,
            base=base,
            epoch=epoch,
            replaces_known=replaces_known_topics(table, registration),
            session=session,
            limits=table_limits(settings),
            run_steps=self.long_work.run,
        )

    def _would_replace_late(self, registration: Registration, connection: Carrier) -> bool:
        """The connection has ended, and the seat belongs to another address. A worker that was suspended finds requests
        of brokers that have been started elsewhere meanwhile, and would put the former address in the place of the new
        one. As a heartbeat of the address that holds the seat, a late registration still counts.
        """
        if not self.sessions.has_ended(connection):
            return False
        group = self.replica.table.groups.get(registration.broker)
        holder = group.addresses.get(registration.broker_id) if group else None
        return holder is not None and holder != registration.address

    @asynccontextmanager
    async def _turn(self, broker: str) -> AsyncIterator[None]:
        """One registration of a group at a time on this worker: several would only make each other start over."""
        lock, waiting = self._turns.get(broker, (asyncio.Lock(), 0))
        self._turns[broker] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._turns.pop(broker)
            if waiting > 1:
                self._turns[broker] = (lock, waiting - 1)

    def is_own_instance(self, connection: SessionConnection, cluster: str, address: str) -> bool:
        """Whether a request of this connection that names the instance counts as its heartbeat before it is handled:
        the connection carries the instance, or comes from the host in the instance's address.
        """
        name = join_instance_name(cluster, address)
        instance = self.replica.table.instances.get(name)
        if instance is None:
            return False
        return self.sessions.is_bound(connection, name, instance.incarnation) or _host(connection.peer) == _host(
            address
        )

    async def query_data_version(
        self, cluster: str, address: str, asked: DataVersion | None, caller: Caller, *, carrier: Carrier = None
    ) -> tuple[bool, DataVersion | None]:
        """Whether the broker has to register, and the data version that is stored. Counts as a heartbeat, as in
        Apache's name server. `carrier` as in `heartbeat_address`.
        """
        reply = await self._heartbeat(cluster, "", 0, caller, address, carrier=carrier)
        if reply.status is Status.UNKNOWN:
            return True, None
        return asked is None or reply.data_version != asked, reply.data_version

    async def heartbeat_address(self, cluster: str, address: str, caller: Caller, *, carrier: Carrier = None) -> None:
        """904. For an unknown broker nothing happens, and the answer is the same. `carrier` is the connection it came
        over, if that decides whether it is accepted: the caller has not proven who it is.
        """
        await self._heartbeat(cluster, "", 0, caller, address, carrier=carrier)

    async def heartbeat(self, cluster: str, broker: str, broker_id: int, caller: Caller, *, address: str = "") -> int:
        reply = await self._heartbeat(cluster, broker, broker_id, caller, address)
        if reply.status is Status.UNKNOWN:
            raise NotFoundError(
                "broker",
                f"{cluster}/{broker}/{broker_id}",
                advice="Register it; a heartbeat creates nothing.",
            )
        return reply.version

    async def _heartbeat(
        self, cluster: str, broker: str, broker_id: int, caller: Caller, address: str, *, carrier: Carrier = None
    ) -> HeartbeatReply:
        foreign = carrier is not None and not self.sessions.is_carried_by(carrier, join_instance_name(cluster, address))
        reply = await heartbeat_broker(
            self._namespace, cluster, broker, broker_id, caller=caller, address=address, foreign=foreign
        )
        if reply.status is Status.REFUSED:
            raise ForbiddenError(
                f"The broker at {address} is connected from another host, which sends its heartbeats.", advice=SEATS
            )
        if address and (known := self.replica.table.instances.get(join_instance_name(cluster, address))):
            broker, broker_id = known.broker, known.broker_id
        if broker:
            self.heartbeat_gaps.record(Seat(cluster, broker, broker_id), reply.gap_ms)
        return reply

    async def unregister(
        self,
        cluster: str,
        broker: str,
        broker_id: int,
        caller: Caller,
        *,
        address: str = "",
        incarnation: str = "",
        cause: Cause = "unregistered",
    ) -> int:
        """Without an address, the instance that holds the seat."""
        group = self.replica.view.groups.get(broker)
        shown = group.addresses.get(broker_id, "") if group and group.cluster == cluster else ""
        write = ReadYourWrites(self.replica)
        carried = is_seat_carried(self.replica.view, self.replica.table, broker, address or shown)
        removal = Removal(
            cluster,
            broker,
            broker_id,
            shown if carried and not address else address,
            incarnation,
            cause=cause,
            carried=carried,
        )
        reply = await self._removals.remove_now([(removal, caller)])
        if reply.statuses[0] is Status.HELD:
            raise RefusedError(
                f"The removal of {broker} id {broker_id} is held, because too many brokers would be removed at once.",
                advice="It stays until its deadline decides, or `routebook expiry release` removes it.",
            )
        if reply.statuses[0] is not Status.DONE:
            raise NotFoundError(
                "broker", f"{cluster}/{broker}/{broker_id}", advice="It was not registered, so nothing changed."
            )
        return await write.wait(reply.version)

    def queue_unregistration(
        self,
        cluster: str,
        broker: str,
        broker_id: int,
        address: str,
        caller: Caller,
        *,
        connection: SessionConnection | None = None,
        protects_others: bool = False,
    ) -> asyncio.Future[None] | None:
        """104. Returns None when the queue is full, else a future that is done when the removal has taken effect.
        `protects_others` as in `Sessions.queue_unregistration`.
        """
        if len(self._removals) >= self.live.current.unregister_broker_queue_capacity:
            return None
        carried = is_seat_carried(self.replica.view, self.replica.table, broker, address)
        removal = Removal(cluster, broker, broker_id, address, carried=carried)
        return self.sessions.queue_unregistration(removal, caller, connection, protects_others=protects_others)

    # -- held expiry

    async def release_expiry(self, caller: Caller) -> ExpiryState:
        write = ReadYourWrites(self.replica)
        outcome = await release_expiry(self._namespace, caller=caller, expire_due=True)
        await write.wait(outcome.version)
        return await self.expiry_state()


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _result(reply: SeatReply) -> RegistrationResult:
    return RegistrationResult(
        status=_RESULTS[reply.status],
        version=reply.version,
        incarnation=reply.incarnation,
        master_address=reply.master_address,
        master_ha_address=reply.master_ha_address,
    )
