"""put_kv, delete_kv, import_kv, set_setting: key-values and run-time settings."""

from collections.abc import Mapping

from routebook.model.caller import Caller
from routebook.store.book import Book, Outcome
from routebook.store.packing import pack_caller, sha256_of


async def put_kv(book: Book, namespace: str, key: str, value: str, *, caller: Caller) -> Outcome:
    return Outcome.of(await book.run("put_kv", pack_caller(caller), namespace, key, value, sha256_of(value)))


async def delete_kv(book: Book, namespace: str, key: str, *, caller: Caller, carried: bool = False) -> Outcome:
    return Outcome.of(await book.run("delete_kv", pack_caller(caller), namespace, key, int(carried)))


async def import_kv(book: Book, table: Mapping[str, Mapping[str, str]], *, caller: Caller) -> Outcome:
    entries = [
        part
        for namespace, values in table.items()
        for key, value in values.items()
        for part in (namespace, key, value, sha256_of(value))
    ]
    return Outcome.of(await book.run("import_kv", pack_caller(caller), *entries))


async def set_setting(book: Book, key: str, value: str, shown: str, *, caller: Caller) -> Outcome:
    """`shown` is what the history may say of the value: secrets masked."""
    return Outcome.of(await book.run("set_setting", pack_caller(caller), key, value, shown))
