"""Apache's key-value file (`kvConfigPath`): taken over once, on a store that never held key-values."""

import asyncio
import json
import logging
from pathlib import Path

from routebook.errors import SettingsError
from routebook.model.caller import Caller
from routebook.store.book import Book
from routebook.store.kv import import_kv
from routebook.store.statuses import Status

_log = logging.getLogger(__name__)


def read_kv_file(path: Path) -> dict[str, dict[str, str]]:
    """Missing or empty: no key-values. Broken, or not of Apache's shape: the start stops, as Apache's does."""
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
        advice='Expected is {"configTable": {"<namespace>": {"<key>": "<value>"}}}; mend it or unset kv_config_path.',
    )


async def import_kv_file(book: Book, path: str, worker: str) -> None:
    if not path:
        return
    table = await asyncio.to_thread(read_kv_file, Path(path))
    if not table:
        return
    outcome = await import_kv(book, table, caller=Caller(worker, source=path))
    if outcome.status is Status.DONE:
        entries = sum(len(values) for values in table.values())
        _log.info("Took over %d key-values from %s.", entries, path)
