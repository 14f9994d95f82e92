"""begin_history, restore_kv, restore_settings, restore_queues, mark_restored: recovery after a loss of data.

repair_group: what a self-check writes back. It also restores key-values and settings, and then passes the position of
its replica, `<history>:<version>`: the script refuses (STALE) if the store has another position.
"""

import secrets
from collections.abc import Mapping, Sequence

from routebook.model.broker import BrokerGroup, Instance, QueueData
from routebook.model.names import Caller
from routebook.store.namespace import (
    CountedOutcome,
    Namespace,
    pack_caller,
    pack_filters,
    pack_mapping,
    queue_item,
    sha256_of,
    text,
)
from routebook.store.reads import GroupImage


async def begin_history(namespace: Namespace, *, history: str) -> str:
    """Rename the history `history`, of which the store lost changes. Returns the name, which the first worker chose."""
    return text((await namespace.run("begin_history", history, secrets.token_hex(8)))[2])


async def restore_kv(
    namespace: Namespace, kv_namespace: str, values: Mapping[str, str], *, caller: Caller, position: str = ""
) -> CountedOutcome:
    entries = [part for key, value in values.items() for part in (key, value, sha256_of(value))]
    return CountedOutcome.of(await namespace.run("restore_kv", pack_caller(caller), position, kv_namespace, *entries))


async def restore_settings(
    namespace: Namespace, values: Mapping[str, tuple[str, str]], *, caller: Caller, position: str = ""
) -> CountedOutcome:
    """`values`: key → value, and the value as the history may show it."""
    entries = [part for key, (value, shown) in values.items() for part in (key, value, shown)]
    return CountedOutcome.of(await namespace.run("restore_settings", pack_caller(caller), position, *entries))


async def restore_queues(
    namespace: Namespace, broker: str, queues: Mapping[str, QueueData], *, revision: int, caller: Caller
) -> CountedOutcome:
    """`revision` of the group as this worker has it. STALE: it has changed. After DONE the revision is the reply's
    version.
    """
    entries = [part for topic, queue in queues.items() for part in (topic, queue.pack(), queue_item(topic, queue))]
    return CountedOutcome.of(await namespace.run("restore_queues", pack_caller(caller), broker, revision, *entries))


async def repair_group(
    namespace: Namespace,
    image: GroupImage,
    broker: str,
    instances: Sequence[Instance],
    topics: Mapping[str, QueueData],
    *,
    position: str,
    caller: Caller,
) -> CountedOutcome:
    """Writes what the store lacks of `image` and its instances, and of `topics`, which are some of the image's."""
    group = image.group or BrokerGroup(name=broker, cluster="")
    mappings = [word for topic, mapping in image.mappings.items() for word in (topic, pack_mapping(mapping))]
    queues = [word for topic, queue in topics.items() for word in (topic, queue.pack(), queue_item(topic, queue))]
    arguments: list[str | int] = [
        pack_caller(caller),
        position,
        broker,
        group.cluster,
        group.zone or "",
        int(group.acting_master),
        group.revision,
        len(group.addresses),
        len(image.clusters),
        len(image.mappings),
        len(instances),
        *(word for seat in group.addresses.items() for word in seat),
        *sorted(image.clusters),
        *mappings,
        *(word for instance in instances for word in _packed_instance(instance)),
        *queues,
    ]
    return CountedOutcome.of(await namespace.run("repair_group", *arguments))


def _packed_instance(instance: Instance) -> list[str | int]:
    return [
        instance.instance_name,
        instance.broker_id,
        instance.incarnation,
        instance.timeout_ms,
        instance.ha_address,
        instance.data_version.pack() if instance.data_version else "",
        pack_filters(instance.filters) if instance.filters else "",
    ]


async def mark_restored(namespace: Namespace) -> None:
    await namespace.run("mark_restored")
