"""The registry's administrative verbs: topics, write permission, key-values, run-time settings, readers of the history.

What a verb would change, without changing it, is in `dry_runs`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from routebook.errors import LimitError, NotFoundError
from routebook.model.broker import QueueData
from routebook.model.names import Caller, check_encodable, check_name
from routebook.registry.registration import check_queue_numbers
from routebook.registry.status import Inspection
from routebook.replica.recovery import brokers_with_carried, is_key_carried
from routebook.replica.replica import ReadYourWrites
from routebook.settings import catalogue
from routebook.store.administration import (
    delete_kv,
    delete_setting,
    delete_topic,
    put_kv,
    register_topic,
    set_setting,
    set_write_permission,
)
from routebook.store.history import Reader, forget_reader, read_history_state
from routebook.store.namespace import Status


def check_key_value(kv_namespace: str, key: str, value: str, max_bytes: int) -> None:
    check_name("namespace", kv_namespace)
    check_name("key", key)
    size = len(check_encodable("value", value).encode())
    if size > max_bytes:
        raise LimitError(f"The value has {size} bytes", "max_key_value_bytes", max_bytes)


@dataclass(frozen=True, slots=True)
class Affected:
    """How many topic entries an operator's verb concerned, and the version of the route table afterwards."""

    count: int
    version: int


class Administration(Inspection):
    """Adds to the reads the verbs that write something else than brokers."""

    # -- write permission

    async def set_write_permission(self, broker: str, writable: bool, caller: Caller) -> Affected:
        write = ReadYourWrites(self.replica)
        outcome = await set_write_permission(
            self._namespace, check_name("broker", broker), writable=writable, caller=caller
        )
        return Affected(outcome.count, await write.wait(outcome.version))

    # -- topics

    async def register_topic(self, topic: str, queues: Mapping[str, QueueData], caller: Caller) -> Affected:
        check_name("topic", topic)
        settings = self.live.current
        for queue in queues.values():
            check_queue_numbers(topic, queue, settings)
        write = ReadYourWrites(self.replica)
        limit = settings.max_topics_per_broker
        outcome = await register_topic(self._namespace, topic, queues, caller=caller, max_topics=limit)
        if outcome.status is Status.LIMITED:
            raise LimitError(f"Topic {topic!r} is new in a group", "max_topics_per_broker", limit)
        await write.wait(outcome.version)
        if outcome.status is Status.UNKNOWN:
            raise NotFoundError(
                "broker",
                next((name for name in queues if name not in self.replica.view.groups), ""),
                advice=f"Wrote {outcome.count} of {len(queues)} entries; all brokers of a new topic must be known.",
            )
        return Affected(outcome.count, outcome.version)

    async def delete_topic(self, topic: str, cluster: str | None, caller: Caller) -> Affected:
        write = ReadYourWrites(self.replica)
        carried = brokers_with_carried(topic, self.replica.view, self.replica.table, cluster=cluster)
        outcome = await delete_topic(
            self._namespace, check_name("topic", topic), cluster=cluster or "", caller=caller, carried_by=carried
        )
        return Affected(outcome.count, await write.wait(outcome.version))

    # -- key-values and settings

    async def put_kv(self, kv_namespace: str, key: str, value: str, caller: Caller) -> int:
        settings = self.live.current
        check_key_value(kv_namespace, key, value, settings.max_key_value_bytes)
        write = ReadYourWrites(self.replica)
        outcome = await put_kv(
            self._namespace,
            kv_namespace,
            key,
            value,
            caller=caller,
            max_count=settings.max_key_values,
            max_bytes=settings.max_key_values_bytes,
        )
        return await write.wait(outcome.version)

    async def delete_kv(self, kv_namespace: str, key: str, caller: Caller) -> int:
        write = ReadYourWrites(self.replica)
        carried = is_key_carried(self.replica.view, self.replica.table, kv_namespace, key)
        outcome = await delete_kv(self._namespace, kv_namespace, key, caller=caller, carried=carried)
        if outcome.status is Status.UNKNOWN:
            raise NotFoundError("key", f"{kv_namespace}/{key}", advice="Nothing changed.")
        return await write.wait(outcome.version)

    async def change_setting(self, key: str, value: str, caller: Caller) -> int:
        canonical = self.live.check(key, value)
        shown = self.live.masked(key, canonical)
        write = ReadYourWrites(self.replica)
        return await write.wait((await set_setting(self._namespace, key, canonical, shown, caller=caller)).version)

    async def reset_setting(self, key: str, caller: Caller) -> int:
        """Goes back to the value of the file, or to the default."""
        before = self.replica.view.settings.get(key)
        if before is None:
            # Suggests the right name. A setting of another release that the store has can be deleted too.
            catalogue.find(key)
        shown = self.live.masked(key, before or "")
        carried = before is not None and key not in self.replica.table.settings
        write = ReadYourWrites(self.replica)
        outcome = await delete_setting(
            self._namespace, key, caller=caller, shown="" if shown == before else shown, carried=carried
        )
        if outcome.status is Status.UNKNOWN:
            raise NotFoundError(
                "run-time setting", key, advice="It was not changed at run time, so there is nothing to reset."
            )
        return await write.wait(outcome.version)

    # -- readers of the history

    async def readers(self) -> Sequence[Reader]:
        """Sorted by name. Those whose position cannot be read are not among them."""
        return sorted((await read_history_state(self._namespace)).readers, key=lambda reader: reader.name)

    async def forget_reader(self, name: str) -> None:
        if not await forget_reader(self._namespace, name):
            raise NotFoundError("reader", name, advice="`GET /v1/readers` lists all known ones.")
