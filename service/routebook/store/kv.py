"""put_kv, delete_kv, import_kv, set_setting: key-values and run-time settings."""

from collections.abc import Sequence
from dataclasses import dataclass

from routebook.model.caller import Caller
from routebook.store.namespace import Namespace, Outcome
from routebook.store.packing import pack_caller, sha256_of
from routebook.store.statuses import Status, status_of


async def put_kv(namespace: Namespace, kv_namespace: str, key: str, value: str, *, caller: Caller) -> Outcome:
    return Outcome.of(await namespace.run("put_kv", pack_caller(caller), kv_namespace, key, value, sha256_of(value)))


async def delete_kv(
    namespace: Namespace, kv_namespace: str, key: str, *, caller: Caller, carried: bool = False
) -> Outcome:
    return Outcome.of(await namespace.run("delete_kv", pack_caller(caller), kv_namespace, key, int(carried)))


@dataclass(frozen=True, slots=True)
class ImportReply:
    """DONE: the part was taken; STALE: it was not; of both `go_on_from` says which entry of the file is next."""

    status: Status
    go_on_from: int
    written: int


async def import_kv(
    namespace: Namespace, part: Sequence[tuple[str, str, str]], *, file: str, start: int, is_last: bool, caller: Caller
) -> ImportReply:
    """(kv_namespace, key, value): the entries from `start` on of the file whose digest is `file`."""
    entries = [word for kv_namespace, key, value in part for word in (kv_namespace, key, value, sha256_of(value))]
    reply = await namespace.run("import_kv", pack_caller(caller), file, start, int(is_last), *entries)
    return ImportReply(status_of(reply), int(reply[2]), int(reply[3]))


async def set_setting(namespace: Namespace, key: str, value: str, shown: str, *, caller: Caller) -> Outcome:
    """`shown` is what the history may say of the value: secrets masked."""
    return Outcome.of(await namespace.run("set_setting", pack_caller(caller), key, value, shown))
