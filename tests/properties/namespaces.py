"""A namespace for each random history, deleted afterwards."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from routebook.store.connection.client import StoreClient
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from tests.properties.states import keys_of

SCRIPTS = ScriptSet.load()


@asynccontextmanager
async def fresh_namespace(client: StoreClient) -> AsyncIterator[Namespace]:
    """Deletes its keys, since the keys of hundreds of namespaces would make every later scan slow."""
    namespace = Namespace(client, Keys(f"t-{secrets.token_hex(6)}"), SCRIPTS)
    yield namespace
    await namespace.client.call("UNLINK", *[key async for key in keys_of(namespace)])
