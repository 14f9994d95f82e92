"""One history lived twice, on the store through scripts and in the reference, compared after each step."""

import itertools
from collections.abc import Sequence

from routebook.model.broker import MinBrokerChange, Registration
from routebook.model.names import join_instance_name
from routebook.store.namespace import Namespace, Status
from routebook.store.removal import expire_brokers, scan_deadlines, unregister_brokers
from routebook.store.sessions import EndedSession, close_sessions
from routebook.store.workers import Lease, acquire_lease
from tests.properties import operations as op
from tests.properties.asking import Worker, ask_reference, ask_store, told_by_reference, told_by_worker
from tests.properties.lagging_replica import LaggingReplica
from tests.properties.plain_worker import CALLER
from tests.properties.states import State, state_of_reference, state_of_store
from tests.reference.registry import ReferenceRegistry

NOW_MS = 1_000_000


def standing_clock() -> int:
    return NOW_MS


class World:
    def __init__(self, namespace: Namespace, worker: Worker, lease: Lease) -> None:
        self.namespace = namespace
        self.worker = worker
        self.lease = lease
        self.reference = ReferenceRegistry(standing_clock)
        self.said: list[Registration] = []
        self.lagging: list[LaggingReplica] = []
        self.names: dict[str, str] = {}
        """Random incarnation → the reference's name for that stay."""
        self._stays = itertools.count(1)

    @classmethod
    async def begin(cls, namespace: Namespace, worker: Worker) -> "World":
        is_mine, lease = await acquire_lease(namespace, "test", 600_000)
        assert is_mine
        return cls(namespace, worker, lease)

    async def live_through(self, history: Sequence[op.Operation]) -> None:
        for operation in history:
            await self._live(operation)
            assert await self.state() == state_of_reference(self.reference), operation
            assert self._take_told() == self._take_expected(), operation

    def _take_told(self) -> list[MinBrokerChange]:
        """What the workers would tell brokers of the last operation. Of one batch, in any order."""
        told, self.worker.notices = sorted(self.worker.notices, key=str), []
        return told

    def _take_expected(self) -> list[MinBrokerChange]:
        expected, self.reference.notices = self.reference.notices, []
        changes = [
            MinBrokerChange(one.broker, one.min_id, one.min_address, one.receivers, one.offline, one.ha_address)
            for one in expected
        ]
        return sorted(changes, key=str)

    async def state(self) -> State:
        return (await state_of_store(self.namespace)).with_incarnations(self.names)

    async def repeat_everything(self) -> None:
        """Whatever was said is said again, the last first, twice: the second time nothing is left to change."""
        for said in list(reversed(self.said)):
            await self.live_through([op.Register(said)])
            if said.data_version is not None:
                before = await state_of_store(self.namespace)
                result = await self.worker.register(said)
                assert result.status in {"unchanged", "turned-down", "refused"}
                assert await state_of_store(self.namespace) == before

    async def _live(self, operation: op.Operation) -> None:
        match operation:
            case op.Register(said):
                await self._register(said)
            case op.Repeat(which):
                if self.said:
                    await self._register(self.said[which % len(self.said)])
            case op.Expire(members):
                await self._expire(members)
            case op.Lose(members):
                await self._lose(members)
            case op.Leave():
                await self._leave(operation)
            case op.Follow():
                for replica in self.lagging:
                    await replica.follow()
            case _:
                told = await ask_store(self.namespace, self.worker, operation)
                assert told == ask_reference(self.reference, operation), operation

    async def _register(self, said: Registration) -> None:
        self.said.append(said)
        result = await self.worker.register(said)
        answer = self.reference.register(said, f"stay-{next(self._stays)}")
        assert told_by_worker(result) == told_by_reference(answer), said
        if answer.outcome == "accepted":
            assert self.names.setdefault(result.incarnation, answer.incarnation) == answer.incarnation
            assert len(set(self.names.values())) == len(self.names)

    async def _expire(self, members: Sequence[tuple[str, str]]) -> None:
        """Their deadlines are moved instead of the clock, which is the server's own."""
        deadlines = self.namespace.keys.table("deadlines")
        for cluster, address in members:
            await self.namespace.client.call("ZADD", deadlines, "XX", 0, join_instance_name(cluster, address))
            if (cluster, address) in self.reference.instances:
                self.reference.instances[cluster, address].deadline_ms = 0
        scan = await scan_deadlines(self.namespace, self.lease.whole, caller=CALLER, limit=100, window_ms=0)
        reply = await expire_brokers(self.namespace, self.lease.whole, scan.listed, caller=CALLER)
        due = sorted(self.reference.due(), key=lambda member: join_instance_name(*member))
        assert [due.instance_name for due in scan.listed] == [join_instance_name(*member) for member in due]
        self.worker.notices.extend(reply.notices)
        assert list(reply.removed) == [join_instance_name(*member) for member in self.reference.expire(due)]

    async def _lose(self, members: Sequence[tuple[str, str]]) -> None:
        """No worker has a session of anybody: every loss is the last one."""
        live = [member for member in members if member in self.reference.instances]
        stays = {stay: incarnation for incarnation, stay in self.names.items()}
        ended = [
            EndedSession(join_instance_name(*one), stays[self.reference.instances[one].incarnation], stamp=0, ago_ms=0)
            for one in live
        ]
        losses = [loss for _, loss in await close_sessions(self.namespace, "test", ended) if loss]
        assert [loss.instance_name for loss in losses] == [join_instance_name(*one) for one in live]
        reply = await unregister_brokers(self.namespace, [(one.departure(), CALLER) for one in losses])
        self.worker.notices.extend(reply.notices)
        assert set(reply.statuses) <= {Status.DONE}
        assert self.reference.remove_lost(live) == live

    async def _leave(self, leaving: op.Leave) -> None:
        groups = self.reference.groups.items()
        seats = [(group.cluster, name, address) for name, group in groups for address in group.addresses.values()]
        if not seats:
            return
        chosen = seats[leaving.which % len(seats)]
        gone = [seat for seat in seats if seat == chosen or (leaving.whole_group and seat[1] == chosen[1])]
        members = list(dict.fromkeys((cluster, address) for cluster, _, address in gone))
        match leaving.how:
            case "expires":
                await self._expire(members)
            case "is lost":
                await self._lose(members)
            case "says so":
                await self._live(op.Unregister(tuple(gone)))
