"""begin_history, restore_kv, restore_settings, restore_queues, mark_restored: recovery after a loss of data."""

import secrets
from collections.abc import Mapping

from routebook.model.broker import QueueData
from routebook.model.names import Caller
from routebook.store.namespace import CountedOutcome, Namespace, text
from routebook.store.packing import pack_caller, queue_item, sha256_of


async def begin_history(namespace: Namespace, *, history: str) -> str:
    """Rename the history `history`, of which the store lost changes. Returns the name, which the first worker chose."""
    return text((await namespace.run("begin_history", history, secrets.token_hex(8)))[2])


async def restore_kv(
    namespace: Namespace, kv_namespace: str, values: Mapping[str, str], *, caller: Caller
) -> CountedOutcome:
    entries = [part for key, value in values.items() for part in (key, value, sha256_of(value))]
    return CountedOutcome.of(await namespace.run("restore_kv", pack_caller(caller), kv_namespace, *entries))


async def restore_settings(
    namespace: Namespace, values: Mapping[str, tuple[str, str]], *, caller: Caller
) -> CountedOutcome:
    """`values`: key → value, and the value as the history may show it."""
    entries = [part for key, (value, shown) in values.items() for part in (key, value, shown)]
    return CountedOutcome.of(await namespace.run("restore_settings", pack_caller(caller), *entries))


async def restore_queues(
    namespace: Namespace, broker: str, queues: Mapping[str, QueueData], *, revision: int, caller: Caller
) -> CountedOutcome:
    """`revision` of the group as this worker has it. STALE: it has changed. After DONE the revision is the reply's
    version.
    """
    entries = [part for topic, queue in queues.items() for part in (topic, queue.pack(), queue_item(topic, queue))]
    return CountedOutcome.of(await namespace.run("restore_queues", pack_caller(caller), broker, revision, *entries))


async def mark_restored(namespace: Namespace) -> None:
    await namespace.run("mark_restored")
