"""For `serve -p`: what was changed at run time, read from the store without starting anything."""

import asyncio

from routebook.settings import Loaded
from routebook.store.client import StoreClient
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace
from routebook.store.reads import read_settings
from routebook.store.scripts import ScriptSet
from routebook.store.url import StoreUrl


def read_run_time_settings(loaded: Loaded) -> dict[str, str]:
    """Raises StoreUnavailableError when the store cannot be asked."""
    return asyncio.run(_read(loaded))


async def _read(loaded: Loaded) -> dict[str, str]:
    settings = loaded.settings
    keys = Keys(settings.namespace)
    client = StoreClient(StoreUrl.parse(settings.redis_url), slot_key=keys.meta, timeout_ms=settings.store_timeout_ms)
    try:
        await client.open()
        return await read_settings(Namespace(client, keys, ScriptSet.load()))
    finally:
        await client.close()
