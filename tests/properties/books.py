"""Books for histories: a name space each, gone afterwards."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from routebook.store.book import Book
from routebook.store.client import StoreClient
from routebook.store.keys import Keys
from routebook.store.scripts import ScriptSet
from tests.properties.states import keys_of

SCRIPTS = ScriptSet.load()


@asynccontextmanager
async def fresh_book(client: StoreClient) -> AsyncIterator[Book]:
    """Hundreds of left-over name spaces would make every later search of keys slow."""
    book = Book(client, Keys(f"t-{secrets.token_hex(6)}"), SCRIPTS)
    yield book
    await book.client.call("UNLINK", *[key async for key in keys_of(book)])
