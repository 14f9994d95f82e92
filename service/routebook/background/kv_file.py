"""Apache's key-value file (`kvConfigPath`): imported once, into a store that never held key-values."""

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from routebook.errors import SettingsError
from routebook.model.names import Caller
from routebook.store.administration import import_kv
from routebook.store.namespace import Namespace, Status, compact_json, sha256_of

_log = logging.getLogger(__name__)

ENTRIES_PER_PART: Final = 250
"""Such a part blocks the store for some 6 ms (`benchmarks/script_blocking.py`)."""


def read_kv_file(path: Path) -> dict[str, dict[str, str]]:
    """A missing or empty file has no key-values. A broken one, or one of another form, ends the start, as in Apache's
    name server.
    """
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise _broken(path, str(error)) from error
    if not text.strip():
        return {}
    try:
        table = json.loads(text)["configTable"]
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(table, dict) or not all(isinstance(values, dict) for values in table.values()):
        raise _broken(path, "configTable is not an object of objects")
    return {
        namespace: {key: str(value) for key, value in values.items() if value is not None}
        for namespace, values in table.items()
    }


def _broken(path: Path, reason: str) -> SettingsError:
    return SettingsError(
        f"kv_config_path names {path}, which cannot be read: {reason}.",
        advice='Expected is {"configTable": {"<namespace>": {"<key>": "<value>"}}}; fix it or unset kv_config_path.',
    )


async def import_kv_file(namespace: Namespace, path: str, worker: str) -> None:
    if not path:
        return
    table = await asyncio.to_thread(read_kv_file, Path(path))
    if not table:
        return
    written = await _import(namespace, table, Caller(worker, source=path))
    if written:
        _log.info("Imported %d key-values from %s.", written, path)


async def _import(namespace: Namespace, table: Mapping[str, Mapping[str, str]], caller: Caller) -> int:
    """In parts, because each blocks the store. The store records the progress for this file: the next start continues
    an import that was cut off, and two workers that start together share the work.
    """
    entries = [(namespace, key, value) for namespace, values in table.items() for key, value in values.items()]
    file = sha256_of(compact_json(entries))
    start = written = 0
    while True:
        end = start + ENTRIES_PER_PART
        is_last = end >= len(entries)
        reply = await import_kv(namespace, entries[start:end], file=file, start=start, is_last=is_last, caller=caller)
        written += reply.written
        if reply.status is Status.UNCHANGED or (reply.status is Status.DONE and is_last):
            return written
        start = reply.next_entry
