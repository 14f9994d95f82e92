"""How brokers are removed, other than by expiry: the verdict about lost connections, dialling, the queue of removals.

When a broker's last connection is lost, Apache's name server removes the broker at once. With several workers that
would be wrong when a worker stops or a load balancer restarts. Waiting for the broker's timeout would be late when the
broker is dead. So a lost connection begins a grace. Within it the worker dials the broker's own address once:

    refused      no process listens there: the broker is removed when the grace ends
    silent       removed too
    accepted     the broker lives: its deadline decides
    not allowed  the address may not be dialled (`Dialler`): its deadline decides. An instance that is not established
                 is removed, whatever listens there

In a mass disconnect nothing is removed here: a firewall that rejects connections refuses the dials of healthy brokers
as well. Then their deadlines decide. In every case the removal names the incarnation that the connection belonged to
and the loss. The script refuses it if that incarnation has had a session since, and holds it when too many brokers
would be removed at once. If the store is away or the worker stops meanwhile, nothing is decided: the loss is reported
again, or the leader finds it in the store and investigates it.

When a worker dies, the leader investigates all of its brokers together. The sessions all ended because of the worker,
so their number means nothing. The dials that fail are counted instead.

Lost connections whose grace has ended join the queue of removals (`RemovalQueue`), where unregistrations (104) wait
too.
"""

import asyncio
import errno
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import islice
from typing import Any, Final

from routebook.errors import NotReadyError, NotSeenYetError, StoreError
from routebook.model.broker import MinBrokerChange
from routebook.model.names import Caller
from routebook.observability.metrics import LossOutcome, Metrics
from routebook.replica.replica import ReadYourWrites, Replica
from routebook.settings.kinds import Network
from routebook.settings.live import LiveSettings
from routebook.store.namespace import Namespace, Status
from routebook.store.removal import Brake, Removal, RemovalsReply, unregister_brokers
from routebook.store.sessions import LostConnection, SessionCounts, count_sessions, resolve_lost_connections

_log = logging.getLogger(__name__)

REMOVALS_PER_BATCH: Final = 200


class MinBrokerChanges:
    """Hands each change of a group's smallest id to the listener, if the settings ask for it.

    The script that makes such a change reports it only to the worker that called it. So each broker is notified once,
    however many workers there are.
    """

    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self.listener: Callable[[MinBrokerChange], None] | None = None
        """Set by the remoting port, which can notify brokers."""

    def notify(self, changes: Iterable[MinBrokerChange]) -> None:
        if self.listener and self._live.current.notify_min_broker_id_changed:
            for change in changes:
                self.listener(change)


@dataclass(frozen=True, slots=True)
class _Waiting:
    removal: Removal
    caller: Caller
    done: asyncio.Future[Status]


class RemovalQueue:
    """Unregistrations from the remoting port (104) wait here up to a capacity. Lost connections whose grace has ended
    join the same batches and are never refused. One task works the queue off, like the unregister service of Apache's
    name server.
    """

    def __init__(
        self,
        namespace: Namespace,
        replica: Replica,
        live: LiveSettings,
        min_broker_changes: MinBrokerChanges,
        metrics: Metrics,
    ) -> None:
        self._namespace = namespace
        self._replica = replica
        self._live = live
        self._min_broker_changes = min_broker_changes
        self._metrics = metrics
        self._waiting: deque[_Waiting] = deque()
        self._not_empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, removal: Removal, caller: Caller) -> asyncio.Future[Status]:
        """Done when the removal has taken effect and this worker's table shows it. Fails with a StoreError: then it is
        unknown whether the removal took effect, and it is not repeated.
        """
        done: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        done.add_done_callback(mark_retrieved)
        self._waiting.append(_Waiting(removal, caller, done))
        self._not_empty.set()
        return done

    async def remove_now(self, removals: Sequence[tuple[Removal, Caller]]) -> RemovalsReply:
        """Without waiting in the queue."""
        reply = await unregister_brokers(self._namespace, removals, Brake.of(self._live.current))
        self._min_broker_changes.notify(reply.notices)
        if reply.hold_began:
            self._metrics.hold_began()
            _log.error(
                "Removals are held: too many brokers were unregistered or lost their connections within a short time. "
                "They stay until they send heartbeats again, or `routebook expiry release` removes them."
            )
        return reply

    async def run(self) -> None:
        try:
            while True:
                await self._not_empty.wait()
                self._not_empty.clear()
                while self._waiting:
                    await self._remove(list(islice(self._waiting, REMOVALS_PER_BATCH)))
        finally:
            for waiting in self._waiting:
                waiting.done.cancel()

    async def _remove(self, batch: list[_Waiting]) -> None:
        write = ReadYourWrites(self._replica)
        try:
            reply = await self.remove_now([(one.removal, one.caller) for one in batch])
        except StoreError as error:
            _log.warning("%d removals did not reach the store: %s", len(batch), error)
            for one in batch:
                if not one.done.done():
                    one.done.set_exception(error)
        else:
            with suppress(NotSeenYetError, NotReadyError):
                await write.wait(reply.version)
            for one, status in zip(batch, reply.statuses, strict=True):
                if not one.done.done():
                    one.done.set_result(status)
        for _ in batch:
            self._waiting.popleft()


def mark_retrieved(done: asyncio.Future[Status] | asyncio.Future[None]) -> None:
    """Keeps asyncio from reporting a failure that no caller waits for: it has been logged."""
    if not done.cancelled():
        done.exception()


MAX_DIALS: Final = 128
"""Dials at the same time."""
DIALS_PER_S: Final = 500
"""A worker that vanishes may leave thousands of brokers to dial."""
MIN_DIAL_S: Final = 1.0
"""Time for one repeated SYN, when the grace is nearly over after waiting for other dials."""
NEAR_PREFIX: Final = {4: 24, 6: 64}

LOCAL_ERRORS: Final = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.EADDRNOTAVAIL,
        errno.EACCES,
        errno.EPERM,
        errno.EAFNOSUPPORT,
    }
)
"""Errors of this process or host, which say nothing about the broker."""

Address = IPv4Address | IPv6Address


class DialResult(StrEnum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    SILENT = "silent"
    """No answer in time, or no route to the host."""
    UNDECIDED = "undecided"
    """A local error prevented the dial."""
    NOT_ALLOWED = "not allowed"
    """The address is outside the networks that may be dialled."""


class Dialler:
    """Dials a broker's own address once, after its last connection was lost.

    Any peer can register any address, so these rules prevent the use of dials as a port scanner:

    - Only addresses in the networks of `dial_networks` are dialled. When that setting is empty, the address has to be
      in the network that the broker's connection came from: the same /24 (IPv6: /64), or loopback like the connection.
    - An instance that is not established yet is dialled only at the address that its connection came from, so that no
      dial reveals anything about other hosts.

    For an address that may not be dialled, the outcome does not depend on what listens there.
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        """`networks`: those that may be dialled; none: the network that the connection came from."""
        self._networks = tuple(networks)
        self._slots = asyncio.Semaphore(MAX_DIALS)
        self._next_start = 0.0

    async def dial(self, loss: LostConnection, until: float) -> DialResult:
        """Connects and sends nothing. If a name has several addresses, one that accepts is enough. `until`: the end of
        the grace, on the monotonic clock.
        """
        host, _, port = loss.address.rpartition(":")
        host = host.strip("[]")
        if not loss.established and parse_address(host) is None:
            return DialResult.NOT_ALLOWED  # not even the name is resolved
        async with self._slots:
            await self._wait_for_turn()
            try:
                async with asyncio.timeout(max(until - time.monotonic(), MIN_DIAL_S)):
                    return await self._dial_all(host, int(port), loss)
            except TimeoutError:
                return DialResult.SILENT

    async def _wait_for_turn(self) -> None:
        now = time.monotonic()
        self._next_start = max(self._next_start + 1 / DIALS_PER_S, now)
        await asyncio.sleep(self._next_start - now)

    async def _dial_all(self, host: str, port: int, loss: LostConnection) -> DialResult:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            return DialResult.SILENT if error.errno == socket.EAI_NONAME else DialResult.UNDECIDED
        except (OSError, UnicodeError):
            return DialResult.UNDECIDED
        results = set[DialResult]()
        for family, kind, protocol, _, address in found:
            target = parse_address(str(address[0]))
            if target is None or not self._may_dial(target, loss):
                results.add(DialResult.NOT_ALLOWED)
                continue
            result = await _dial_one(family, kind, protocol, address)
            if result is DialResult.ACCEPTED:
                return result
            results.add(result)
        if results == {DialResult.REFUSED}:
            return DialResult.REFUSED
        if DialResult.NOT_ALLOWED in results:
            return DialResult.NOT_ALLOWED
        return DialResult.SILENT if DialResult.UNDECIDED not in results else DialResult.UNDECIDED

    def _may_dial(self, target: Address, loss: LostConnection) -> bool:
        source = parse_address(loss.source.rpartition(":")[0])
        is_own_host = target == source and not target.is_loopback
        if not (is_own_host or loss.established):
            return False
        if self._networks:
            return any(target in network for network in self._networks)
        return source is not None and are_near(target, source)


def parse_address(host: str) -> Address | None:
    """None for a name. An IPv4 address in IPv6 form counts as IPv4."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def are_near(target: Address, source: Address) -> bool:
    if target.is_loopback or source.is_loopback:
        return target.is_loopback and source.is_loopback
    network = ip_network(f"{source}/{NEAR_PREFIX[source.version]}", strict=False)
    return target.version == source.version and target in network


async def _dial_one(family: int, kind: int, protocol: int, address: Any) -> DialResult:
    try:
        with socket.socket(family, kind, protocol) as connection:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, address)
    except ConnectionRefusedError:
        return DialResult.REFUSED
    except OSError as error:
        return DialResult.UNDECIDED if error.errno in LOCAL_ERRORS else DialResult.SILENT
    return DialResult.ACCEPTED


DIAL_AFTER: Final = 1 / 3
"""The part of the grace before the dial. A dying process closes its listener and its connections in any order, and a
short network failure often ends within that time.
"""
COUNT_VALID_S: Final = 0.25
REPORT_PERIOD_S: Final = 60.0
LOSSES_PER_CALL: Final = 500
RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class SessionShare:
    """How many sessions ended within a period, and how many there were."""

    ended: int
    total: int


class LostConnections:
    def __init__(
        self,
        namespace: Namespace,
        live: LiveSettings,
        removals: RemovalQueue,
        metrics: Metrics,
        *,
        worker: str,
        own_share: Callable[[float], SessionShare],
        report_again: Callable[[LostConnection], None],
    ) -> None:
        """`own_share` counts this worker's sessions over the given number of seconds. `report_again` starts over with a
        loss whose investigation failed.
        """
        self._namespace = namespace
        self._live = live
        self._removals = removals
        self._metrics = metrics
        self._caller = Caller(worker)
        self._own_share = own_share
        self._report_again = report_again
        self._investigations: set[asyncio.Task[None]] = set()
        self._dialler = Dialler(live.current.dial_network_list)
        self._resolved: list[LostConnection] = []
        self._has_resolved = asyncio.Event()
        self._last_count: tuple[float, bool] = (0.0, False)
        """When sessions were counted, and whether that was a mass disconnect."""
        self._next_report = 0.0
        self._stopped = False

    def investigate(self, losses: Sequence[LostConnection]) -> None:
        """Starts a task for each loss."""
        grace_s = self._live.current.connection_grace_ms / 1000
        for loss in losses:
            self._start(self._investigate(loss, grace_s))

    def investigate_adopted(self, losses: Sequence[LostConnection]) -> None:
        """The losses of workers that died, which are judged together."""
        if losses:
            self._start(self._investigate_adopted(losses, self._live.current.connection_grace_ms / 1000))

    def _start(self, investigation: Coroutine[None, None, None]) -> None:
        if self._stopped:
            investigation.close()
            return
        task = asyncio.create_task(investigation)
        self._investigations.add(task)
        task.add_done_callback(self._investigation_ended)

    def stop(self) -> None:
        """Removes no broker from now on. The leader takes over the investigations."""
        self._stopped = True
        for task in self._investigations:
            task.cancel()

    async def run(self) -> None:
        """Reports to the store which losses are resolved without a removal."""
        try:
            while True:
                await self._has_resolved.wait()
                self._has_resolved.clear()
                await self._report_resolved()
        finally:
            self.stop()

    def _investigation_ended(self, task: asyncio.Task[None]) -> None:
        self._investigations.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("Investigating a lost connection failed; the broker's deadline decides.", exc_info=error)

    async def _investigate(self, loss: LostConnection, grace_s: float) -> None:
        try:
            outcome = await self._decide(loss, grace_s)
            await self._carry_out(loss, outcome)
        except StoreError as error:
            self._start_over(loss, error)

    async def _decide(self, loss: LostConnection, grace_s: float) -> LossOutcome:
        if grace_s == 0:
            return "removed_at_once"
        outcome = _OUTCOMES[await self._dial_within(loss, grace_s)]
        if outcome == "not_dialled" and not loss.established:
            outcome = "removed_not_dialled"
        if outcome in _REMOVING and await self._is_mass_disconnect(loss, grace_s):
            return "mass_disconnect"
        return outcome

    async def _dial_within(self, loss: LostConnection, grace_s: float) -> DialResult:
        """Ends with the grace, so that the time reveals nothing about the result."""
        grace_ends = time.monotonic() + grace_s
        await asyncio.sleep(grace_s * DIAL_AFTER)
        result = await self._dialler.dial(loss, grace_ends)
        await asyncio.sleep(grace_ends - time.monotonic())
        return result

    async def _investigate_adopted(self, losses: Sequence[LostConnection], grace_s: float) -> None:
        results = await asyncio.gather(*(self._dial_within(loss, grace_s) for loss in losses))
        failed = sum(result in _FAILED for result in results)
        try:
            is_mass_disconnect = await self._have_many_failed(failed) if failed else False
        except StoreError as error:
            for loss in losses:
                self._start_over(loss, error)
            return
        await asyncio.gather(
            *(
                self._end_adopted(loss, result, is_mass_disconnect=is_mass_disconnect)
                for loss, result in zip(losses, results, strict=True)
            )
        )

    async def _end_adopted(self, loss: LostConnection, result: DialResult, *, is_mass_disconnect: bool) -> None:
        """Only a refused dial removes. A broker that does not answer may be cut off from the leader only:
        the worker that it was connected to may have been in another network.
        """
        outcome = _OUTCOMES[result]
        if result in _FAILED and is_mass_disconnect:
            outcome = "mass_disconnect"
        elif result is DialResult.SILENT:
            outcome = "undecided"
        try:
            await self._carry_out(loss, outcome)
        except StoreError as error:
            self._start_over(loss, error)

    async def _have_many_failed(self, failed: int) -> bool:
        counts = await count_sessions(self._namespace, 0)
        share = SessionShare(failed, _number_of_brokers(counts))
        is_mass_disconnect = counts.cut_off or self._is_large(share)
        if is_mass_disconnect:
            self._report_mass_disconnect(share, share)
        return is_mass_disconnect

    async def _carry_out(self, loss: LostConnection, outcome: LossOutcome) -> None:
        if outcome in _REMOVING:
            status = await self._removals.add(loss.removal(), self._caller)
            outcome = outcome if status is Status.DONE else "held" if status is Status.HELD else "returned"
        else:
            self._resolved.append(loss)
            self._has_resolved.set()
        self._metrics.lost_connection(outcome)
        _log.info("Lost the last connection of %s (%s): %s.", loss.instance_name, loss.broker, outcome)

    def _start_over(self, loss: LostConnection, error: StoreError) -> None:
        _log.debug("The loss of %s waits for the store: %s", loss.instance_name, error)
        self._report_again(loss)

    async def _is_mass_disconnect(self, loss: LostConnection, grace_s: float) -> bool:
        """Counts from one grace before this loss on, so that the last connection to be cut counts the earlier ones.

        The network of this worker alone may have failed, so its own share is checked as well.
        """
        counted_at, is_mass_disconnect = self._last_count
        if time.monotonic() - counted_at > COUNT_VALID_S:
            counts = await count_sessions(self._namespace, loss.lost_ms - int(grace_s * 1000))
            own = self._own_share(2 * grace_s + MIN_DIAL_S)
            of_all = SessionShare(counts.ended, _number_of_brokers(counts))
            is_mass_disconnect = counts.cut_off or self._is_large(of_all) or self._is_large(own)
            self._last_count = time.monotonic(), is_mass_disconnect
            if is_mass_disconnect:
                self._report_mass_disconnect(of_all, own)
        return is_mass_disconnect

    def _is_large(self, share: SessionShare) -> bool:
        settings = self._live.current
        return (
            share.ended >= settings.mass_disconnect_minimum
            and share.ended * 100 >= settings.mass_disconnect_percent * share.total
        )

    def _report_mass_disconnect(self, of_all: SessionShare, own: SessionShare) -> None:
        now = time.monotonic()
        if now < self._next_report:
            return
        self._next_report = now + REPORT_PERIOD_S
        self._metrics.mass_disconnect()
        _log.error(
            "Mass disconnect: %d sessions of %d ended together (%d of %d on this worker), and brokers cannot be "
            "reached at their addresses. None of them is removed before its own deadline. Look at the network between "
            "Routebook and the brokers.",
            of_all.ended,
            of_all.total,
            own.ended,
            own.total,
        )

    async def _report_resolved(self) -> None:
        while self._resolved:
            batch = self._resolved[:LOSSES_PER_CALL]
            try:
                await resolve_lost_connections(self._namespace, batch)
            except StoreError:
                await asyncio.sleep(RETRY_S)
            else:
                del self._resolved[: len(batch)]


def _number_of_brokers(counts: SessionCounts) -> int:
    """Instances that are not established do not make a loss look smaller than it is."""
    return min(counts.open + counts.lost, counts.established)


_FAILED: Final = frozenset({DialResult.REFUSED, DialResult.SILENT})
_OUTCOMES: Final[dict[DialResult, LossOutcome]] = {
    DialResult.ACCEPTED: "alive",
    DialResult.REFUSED: "removed_refused",
    DialResult.SILENT: "removed_silent",
    DialResult.UNDECIDED: "undecided",
    DialResult.NOT_ALLOWED: "not_dialled",
}
_REMOVING: Final = frozenset[LossOutcome](
    {"removed_at_once", "removed_refused", "removed_silent", "removed_not_dialled"}
)
