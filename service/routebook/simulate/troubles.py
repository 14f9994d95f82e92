"""Executes the steps of a plan."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

from routebook.model.broker import QueueData
from routebook.protocol.frame import RequestCode
from routebook.simulate.broker import GroupState, SimulatedBroker, call_and_describe, queue_numbers
from routebook.simulate.client import ServerConnection
from routebook.simulate.layout import PORTS_PER_HOST
from routebook.simulate.plan import Step
from routebook.simulate.records import Counts, Journal, now_ms

OPERATOR_MS: Final = 5_000
"""The timeout of mqadmin for requests to a name server."""


class Troubles:
    def __init__(
        self, groups: Mapping[str, list[SimulatedBroker]], name_servers: Sequence[str], journal: Journal, counts: Counts
    ) -> None:
        self._groups = groups
        self._operator_connections = [ServerConnection(address) for address in name_servers]
        self._journal = journal
        self._counts = counts

    async def close(self) -> None:
        for connection in self._operator_connections:
            await connection.close()

    async def execute(self, step: Step) -> None:
        """Returns when the trouble is over."""
        self._journal.record("planned", kind=step.kind, at_s=round(step.at_s, 3), groups=step.groups, topic=step.topic)
        self._counts.troubles[step.kind] += 1
        match step.kind:
            case "topic-created" | "topic-resized":
                async with asyncio.TaskGroup() as tasks:
                    for name in step.groups:
                        tasks.create_task(self._change_topic(step, name, step.queue))
            case "topic-deleted":
                await self._delete_topic(step)
            case _:
                brokers = self._groups[step.groups[0]]
                async with brokers[0].group.trouble_lock:
                    await self._execute_for_group(step, brokers)

    async def _execute_for_group(self, step: Step, brokers: list[SimulatedBroker]) -> None:
        broker = sorted_by_broker_id(brokers)[step.rank % len(brokers)]
        match step.kind:
            case "crash":
                await broker.crash()
                await self._restart(broker, step.lasts_s)
            case "deploy":
                await broker.unregister_and_stop()
                if step.moves:
                    broker.address = with_next_port(broker.address)
                await self._restart(broker, step.lasts_s)
            case "silence":
                await broker.become_silent()
                await asyncio.sleep(step.lasts_s)
                await self._raise_version(broker)
                await broker.resume()
            case "flap":
                for down_s, up_s in step.downs:
                    await broker.crash()
                    await self._restart(broker, down_s)
                    await asyncio.sleep(up_s)
            case "switch":
                await self._switch(step, brokers)
            case "permission":
                await self._set_write_permission(broker.group, RequestCode.WIPE_WRITE_PERM_OF_BROKER)
                await asyncio.sleep(step.lasts_s)
                await self._set_write_permission(broker.group, RequestCode.ADD_WRITE_PERM_OF_BROKER)

    async def _restart(self, broker: SimulatedBroker, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._raise_version(broker)
        await broker.start("return")

    @staticmethod
    async def _raise_version(broker: SimulatedBroker) -> None:
        """Makes a name server that did not notice the absence apply the topics again too, so that the result does not
        depend on timing.
        """
        async with broker.group.send_lock:
            broker.group.table.raise_version()

    async def _switch(self, step: Step, brokers: list[SimulatedBroker]) -> None:
        old = sorted_by_broker_id(brokers)[0]
        new = sorted_by_broker_id(brokers)[step.rank % len(brokers)]
        if step.lasts_s:
            await old.crash()
            await asyncio.sleep(step.lasts_s)
        async with old.group.send_lock:
            old.group.table.raise_version(state_versions=1)
            former_id = new.broker_id
            new.broker_id, old.broker_id = old.broker_id, former_id
            self._journal.record(
                "switched",
                cluster=old.group.cluster,
                broker=old.group.name,
                master=new.address,
                former=old.address,
                id_of_former=former_id,
            )
            await new.register_now("switch")
            await old.register_now("switch")
        if step.then_s:
            await self._restart(old, step.then_s)

    # -- operators

    async def _set_write_permission(self, group: GroupState, code: RequestCode) -> None:
        async with group.send_lock:
            sent_ms, answers = now_ms(), await self._request_from_all(code, {"brokerName": group.name})
            self._journal.record(
                "write-permission",
                cluster=group.cluster,
                broker=group.name,
                writable=code is RequestCode.ADD_WRITE_PERM_OF_BROKER,
                sent_ms=sent_ms,
                servers=answers,
            )

    async def _request_from_all(self, code: RequestCode, ext: dict[str, str]) -> dict[str, dict[str, object]]:
        calls = [
            call_and_describe(connection, code, ext, timeout_ms=OPERATOR_MS, counts=self._counts)
            for connection in self._operator_connections
        ]
        outcomes = await asyncio.gather(*calls)
        addresses = [connection.address for connection in self._operator_connections]
        return dict(zip(addresses, outcomes, strict=True))

    async def _change_topic(self, step: Step, name: str, queue: QueueData) -> None:
        """Changes the topic at the broker, which registers this topic alone at once."""
        brokers = self._groups[name]
        master = sorted_by_broker_id(brokers)[0]
        group = master.group
        async with group.trouble_lock, group.send_lock:
            if step.kind == "topic-resized" and step.topic not in group.table.topics:
                return  # It has been deleted in the meantime.
            group.table.put(step.topic, queue)
            self._journal.record(
                step.kind, cluster=group.cluster, broker=name, topic=step.topic, queue=queue_numbers(queue)
            )
            await master.register_now(step.kind, {step.topic: queue})

    async def _delete_topic(self, step: Step) -> None:
        """Like mqadmin, deletes it at the brokers first, then at the name servers, for the whole cluster. Meanwhile no
        broker of the cluster sends requests, because a registration could restore the topic.
        """
        groups = [
            brokers[0].group for _, brokers in sorted(self._groups.items()) if brokers[0].group.cluster == step.cluster
        ]
        async with AsyncExitStack() as stack:
            for group in groups:
                await stack.enter_async_context(group.send_lock)
            had = [group.name for group in groups if group.table.remove(step.topic)]
            sent_ms = now_ms()
            ext = {"topic": step.topic, "clusterName": step.cluster}
            answers = await self._request_from_all(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext)
            self._journal.record(
                "topic-deleted", cluster=step.cluster, topic=step.topic, brokers=had, sent_ms=sent_ms, servers=answers
            )


def sorted_by_broker_id(brokers: list[SimulatedBroker]) -> list[SimulatedBroker]:
    return sorted(brokers, key=lambda broker: broker.broker_id)


def with_next_port(address: str) -> str:
    """The address with the next port of its host; after the last one, the first again."""
    host, _, port = address.rpartition(":")
    base, offset = divmod(int(port), PORTS_PER_HOST)
    return f"{host}:{base * PORTS_PER_HOST + (offset + 1) % PORTS_PER_HOST}"
