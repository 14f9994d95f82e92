"""Makes the steps of a plan come true."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

from routebook.model.topic import QueueData
from routebook.protocol.command import RequestCode
from routebook.simulate.broker import GroupState, SimulatedBroker, call_and_describe, queue_numbers
from routebook.simulate.client import ServerConnection
from routebook.simulate.layout import MOVES
from routebook.simulate.plan import Step
from routebook.simulate.records import Counts, Journal, now_ms

OPERATOR_MS: Final = 5_000
"""What mqadmin gives a name server."""


class Troubles:
    def __init__(
        self, groups: Mapping[str, list[SimulatedBroker]], name_servers: Sequence[str], journal: Journal, counts: Counts
    ) -> None:
        self._groups = groups
        self._operator = [ServerConnection(address) for address in name_servers]
        self._journal = journal
        self._counts = counts

    async def close(self) -> None:
        for line in self._operator:
            await line.close()

    async def make(self, step: Step) -> None:
        """Returns when it is over."""
        self._journal.tell("planned", kind=step.kind, at_s=round(step.at_s, 3), groups=step.groups, topic=step.topic)
        self._counts.troubles[step.kind] += 1
        match step.kind:
            case "topic-created" | "topic-resized":
                async with asyncio.TaskGroup() as changing:
                    for name in step.groups:
                        changing.create_task(self._change_topic(step, name, step.queue))
            case "topic-deleted":
                await self._delete_topic(step)
            case _:
                members = self._groups[step.groups[0]]
                async with members[0].group.trouble:
                    await self._happen(step, members)

    async def _happen(self, step: Step, members: list[SimulatedBroker]) -> None:
        broker = sorted_by_broker_id(members)[step.rank % len(members)]
        match step.kind:
            case "crash":
                await broker.crash()
                await self._return(broker, step.lasts_s)
            case "deploy":
                await broker.unregister_and_stop()
                if step.moves:
                    broker.address = with_next_port(broker.address)
                await self._return(broker, step.lasts_s)
            case "silence":
                await broker.become_silent()
                await asyncio.sleep(step.lasts_s)
                await self._raise_version(broker)
                await broker.resume()
            case "flap":
                for down_s, up_s in step.downs:
                    await broker.crash()
                    await self._return(broker, down_s)
                    await asyncio.sleep(up_s)
            case "switch":
                await self._switch(step, members)
            case "permission":
                await self._set_write(broker.group, RequestCode.WIPE_WRITE_PERM_OF_BROKER)
                await asyncio.sleep(step.lasts_s)
                await self._set_write(broker.group, RequestCode.ADD_WRITE_PERM_OF_BROKER)

    async def _return(self, broker: SimulatedBroker, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._raise_version(broker)
        await broker.start("return")

    @staticmethod
    async def _raise_version(broker: SimulatedBroker) -> None:
        """A name server that has not yet missed it applies its topics anew all the same: what they are then does not
        depend on who was faster.
        """
        async with broker.group.wire:
            broker.group.table.raise_version()

    async def _switch(self, step: Step, members: list[SimulatedBroker]) -> None:
        old = sorted_by_broker_id(members)[0]
        new = sorted_by_broker_id(members)[step.rank % len(members)]
        if step.lasts_s:
            await old.crash()
            await asyncio.sleep(step.lasts_s)
        async with old.group.wire:
            old.group.table.raise_version(state_versions=1)
            was = new.broker_id
            new.broker_id, old.broker_id = old.broker_id, was
            self._journal.tell(
                "switched",
                cluster=old.group.cluster,
                broker=old.group.name,
                master=new.address,
                former=old.address,
                id_of_former=was,
            )
            await new.register_now("switch")
            await old.register_now("switch")
        if step.then_s:
            await self._return(old, step.then_s)

    # -- operators

    async def _set_write(self, group: GroupState, code: RequestCode) -> None:
        async with group.wire:
            sent_ms, answers = now_ms(), await self._order(code, {"brokerName": group.name})
            self._journal.tell(
                "write-permission",
                cluster=group.cluster,
                broker=group.name,
                writable=code is RequestCode.ADD_WRITE_PERM_OF_BROKER,
                sent_ms=sent_ms,
                servers=answers,
            )

    async def _order(self, code: RequestCode, ext: dict[str, str]) -> dict[str, dict[str, object]]:
        answers = [
            call_and_describe(line, code, ext, timeout_ms=OPERATOR_MS, counts=self._counts) for line in self._operator
        ]
        found = await asyncio.gather(*answers)
        return {line.address: answer for line, answer in zip(self._operator, found, strict=True)}

    async def _change_topic(self, step: Step, name: str, queue: QueueData) -> None:
        """Made at the broker, which tells its name servers at once, of this topic alone."""
        members = self._groups[name]
        master = sorted_by_broker_id(members)[0]
        group = master.group
        async with group.trouble, group.wire:
            if step.kind == "topic-resized" and step.topic not in group.table.topics:
                return  # Deleted since.
            group.table.put(step.topic, queue)
            self._journal.tell(
                step.kind, cluster=group.cluster, broker=name, topic=step.topic, queue=queue_numbers(queue)
            )
            await master.register_now(step.kind, {step.topic: queue})

    async def _delete_topic(self, step: Step) -> None:
        """As mqadmin does it: first at the brokers, then at the name servers, where it is gone for the whole cluster.
        Nobody of the cluster speaks meanwhile, for a registration on its way would bring it back.
        """
        groups = [
            members[0].group for _, members in sorted(self._groups.items()) if members[0].group.cluster == step.cluster
        ]
        async with AsyncExitStack() as stack:
            for group in groups:
                await stack.enter_async_context(group.wire)
            had = [group.name for group in groups if group.table.remove(step.topic)]
            sent_ms = now_ms()
            ext = {"topic": step.topic, "clusterName": step.cluster}
            answers = await self._order(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext)
            self._journal.tell(
                "topic-deleted", cluster=step.cluster, topic=step.topic, brokers=had, sent_ms=sent_ms, servers=answers
            )


def sorted_by_broker_id(members: list[SimulatedBroker]) -> list[SimulatedBroker]:
    return sorted(members, key=lambda broker: broker.broker_id)


def with_next_port(address: str) -> str:
    """The next of the ports of its host; after some it is back at the first one."""
    host, _, port = address.rpartition(":")
    base, at = divmod(int(port), MOVES)
    return f"{host}:{base * MOVES + (at + 1) % MOVES}"
