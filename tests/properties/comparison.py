"""Applies a history to the store and to the reference model, and compares both after each operation."""

import itertools
from collections.abc import Sequence

from routebook.model.broker import MinBrokerChange, Registration
from routebook.model.names import join_instance_name
from routebook.store.namespace import Namespace, Status
from routebook.store.removal import expire_brokers, scan_deadlines, unregister_brokers
from routebook.store.sessions import EndedSession, close_sessions
from routebook.store.workers import Lease, acquire_lease
from tests.properties import operations as op
from tests.properties.lagging_replica import LaggingReplica
from tests.properties.outcomes import (
    Worker,
    apply_to_reference,
    apply_to_store,
    outcome_of_reference,
    outcome_of_worker,
)
from tests.properties.plain_worker import CALLER
from tests.properties.states import State, state_of_reference, state_of_store
from tests.reference.registry import ReferenceRegistry
from tests.support.scripts import NO_BRAKE

NOW_MS = 1_000_000


def fixed_clock() -> int:
    return NOW_MS


class Comparison:
    def __init__(self, namespace: Namespace, worker: Worker, lease: Lease) -> None:
        self.namespace = namespace
        self.worker = worker
        self.lease = lease
        self.reference = ReferenceRegistry(fixed_clock)
        self.registrations: list[Registration] = []
        self.lagging: list[LaggingReplica] = []
        self.names: dict[str, str] = {}
        """Random incarnation → the same incarnation in the reference model."""
        self._numbers = itertools.count(1)

    @classmethod
    async def begin(cls, namespace: Namespace, worker: Worker) -> "Comparison":
        is_mine, lease = await acquire_lease(namespace, "test", 600_000)
        assert is_mine
        return cls(namespace, worker, lease)

    async def run(self, history: Sequence[op.Operation]) -> None:
        for operation in history:
            await self._apply(operation)
            assert await self.state() == state_of_reference(self.reference), operation
            assert self._take_notices() == self._take_expected_notices(), operation

    def _take_notices(self) -> list[MinBrokerChange]:
        """The notifications of the last operation. Their order within a batch does not matter."""
        notices, self.worker.notices = sorted(self.worker.notices, key=str), []
        return notices

    def _take_expected_notices(self) -> list[MinBrokerChange]:
        expected, self.reference.notices = self.reference.notices, []
        changes = [
            MinBrokerChange(
                notice.broker, notice.min_id, notice.min_address, notice.receivers, notice.offline, notice.ha_address
            )
            for notice in expected
        ]
        return sorted(changes, key=str)

    async def state(self) -> State:
        return (await state_of_store(self.namespace)).with_incarnations(self.names)

    async def repeat_everything(self) -> None:
        """Repeats all registrations, the last one first, each one twice. The second repetition must change nothing."""
        for registration in list(reversed(self.registrations)):
            await self.run([op.Register(registration)])
            if registration.data_version is not None:
                before = await state_of_store(self.namespace)
                result = await self.worker.register(registration)
                assert result.status in {"unchanged", "turned-down", "refused"}
                assert await state_of_store(self.namespace) == before

    async def _apply(self, operation: op.Operation) -> None:
        match operation:
            case op.Register(registration):
                await self._register(registration)
            case op.Repeat(which):
                if self.registrations:
                    await self._register(self.registrations[which % len(self.registrations)])
            case op.Expire(instances):
                await self._expire(instances)
            case op.LoseConnections(instances):
                await self._lose_connections(instances)
            case op.Depart():
                await self._depart(operation)
            case op.CatchUp():
                for replica in self.lagging:
                    await replica.catch_up()
            case _:
                outcome = await apply_to_store(self.namespace, self.worker, operation)
                assert outcome == apply_to_reference(self.reference, operation), operation

    async def _register(self, registration: Registration) -> None:
        self.registrations.append(registration)
        result = await self.worker.register(registration)
        answer = self.reference.register(registration, f"incarnation-{next(self._numbers)}")
        assert outcome_of_worker(result) == outcome_of_reference(answer), registration
        if answer.outcome == "accepted":
            assert self.names.setdefault(result.incarnation, answer.incarnation) == answer.incarnation
            assert len(set(self.names.values())) == len(self.names)

    async def _expire(self, instances: Sequence[tuple[str, str]]) -> None:
        """Moves the deadlines into the past, since the clock of the server cannot be moved."""
        deadlines = self.namespace.keys.table("deadlines")
        for cluster, address in instances:
            await self.namespace.client.call("ZADD", deadlines, "XX", 0, join_instance_name(cluster, address))
            if (cluster, address) in self.reference.instances:
                self.reference.instances[cluster, address].deadline_ms = 0
        scan = await scan_deadlines(self.namespace, self.lease.whole, caller=CALLER, limit=100, brake=NO_BRAKE)
        reply = await expire_brokers(self.namespace, self.lease.whole, scan.listed, caller=CALLER)
        due = sorted(self.reference.due(), key=lambda instance: join_instance_name(*instance))
        listed = [due.instance_name for due in scan.listed]
        assert listed == [join_instance_name(*instance) for instance in due], f"{listed} are listed, not {due}"
        self.worker.notices.extend(reply.notices)
        assert list(reply.removed) == [join_instance_name(*instance) for instance in self.reference.expire(due)]

    async def _lose_connections(self, instances: Sequence[tuple[str, str]]) -> None:
        """No worker has a session of any of them, so each lost connection is the last one."""
        present = [instance for instance in instances if instance in self.reference.instances]
        incarnations = {name: incarnation for incarnation, name in self.names.items()}
        ended = [
            EndedSession(
                join_instance_name(*instance),
                incarnations[self.reference.instances[instance].incarnation],
                stamp=0,
                ago_ms=0,
            )
            for instance in present
        ]
        losses = [loss for _, loss in await close_sessions(self.namespace, "test", ended) if loss]
        assert [loss.instance_name for loss in losses] == [join_instance_name(*instance) for instance in present]
        reply = await unregister_brokers(self.namespace, [(loss.removal(), CALLER) for loss in losses], NO_BRAKE)
        self.worker.notices.extend(reply.notices)
        assert set(reply.statuses) <= {Status.DONE}
        assert self.reference.remove_lost(present) == present

    async def _depart(self, operation: op.Depart) -> None:
        groups = self.reference.groups.items()
        seats = [(group.cluster, name, address) for name, group in groups for address in group.addresses.values()]
        if not seats:
            return
        chosen = seats[operation.which % len(seats)]
        departing = [seat for seat in seats if seat == chosen or (operation.whole_group and seat[1] == chosen[1])]
        instances = list(dict.fromkeys((cluster, address) for cluster, _, address in departing))
        match operation.how:
            case "expires":
                await self._expire(instances)
            case "loses its connection":
                await self._lose_connections(instances)
            case "unregisters":
                await self._apply(op.Unregister(tuple(departing)))
