"""The store of the simulation gives the replies of a real server: every command goes to both.

The scripts read the time from a key that both have, because the clock of a real server cannot be set.
"""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from hypothesis import given, settings

from routebook.store.connection.client import StoreClient, Word
from routebook.store.connection.url import StoreUrl
from tests.properties import namespaces
from tests.properties import operations as op
from tests.properties.comparison import Comparison
from tests.properties.namespaces import fresh_namespace
from tests.properties.plain_worker import PlainWorker
from tests.properties.test_histories import quick, thorough
from tests.properties.whole_worker import whole_worker
from tests.simulation.lua_store import LuaScripts, MemoryStore
from tests.simulation.memory_values import CommandError
from tests.support.scripts import with_replaced_text

LUA: Final = LuaScripts()
START_MS: Final = 1_700_000_000_000
MOST_MS: Final = 9_000
"""Below the shortest timeout, because the clock of the reference does not move."""
ERROR: Final = "an error reply"
READS_HASHES: Final = {namespaces.SCRIPTS["read_group"].sha1}
NOT_COMPARED: Final = frozenset({"TIME", "SCAN", "UNLINK", "TYPE", "INFO"})
"""The replies differ: the clock is another one, and other tests on this server have keys too."""


class MirroredClient(StoreClient):
    """Sends each command to the server and to a store in memory, and compares the replies."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(StoreUrl.parse(url), slot_key="rb:{t}:meta", timeout_ms=20_000)
        self.memory = MemoryStore(lambda: self._now_ms, LUA)
        self.compared = 0
        self._now_ms = START_MS
        self._chance = random.Random(seed)

    async def call(self, *words: Word, timeout_ms: int | None = None, epoch: int | None = None) -> Any:
        if words[0] in ("EVAL", "EVALSHA"):
            await self._move_clock(str(words[3]))
        reply: Any = ERROR
        try:
            reply = await super().call(*words, timeout_ms=timeout_ms, epoch=epoch)
        finally:
            # Not after NOSCRIPT: the same script is sent again with its text.
            if reply is not ERROR or words[0] != "EVALSHA":
                self._compare(words, reply)
        return reply

    async def pipeline(self, commands: Sequence[Sequence[Word]], timeout_ms: int | None = None) -> list[Any]:
        replies = await super().pipeline(commands, timeout_ms)
        for words, reply in zip(commands, replies, strict=True):
            self._compare(words, reply)
        return replies

    async def call_blocking(self, *words: Word, block_ms: int) -> Any:
        """A reply without entries says only that there were none for a while."""
        return await super().call_blocking(*words, block_ms=block_ms)

    async def _move_clock(self, meta: str) -> None:
        """Mostly by some milliseconds, sometimes by so much that the deadline clock pauses."""
        step_ms = self._chance.choice((0, 0, 1, 50)) if self._chance.random() < 0.97 else 7_000
        self._now_ms = max(self._now_ms, min(self._now_ms + step_ms, START_MS + MOST_MS))
        clock = ("HSET", f"{meta}-clock", "s", self._now_ms // 1000, "us", self._now_ms % 1000 * 1000)
        await super().call(*clock)
        self.memory.execute(*clock)

    def _in_memory(self, words: Sequence[Word]) -> Any:
        if words[0] == "EVALSHA":
            self.memory.loaded.add(str(words[1]).encode())
        try:
            return self.memory.execute(*words)
        except CommandError:
            return ERROR

    def _compare(self, words: Sequence[Word], reply: Any) -> None:
        if words[0] in NOT_COMPARED:
            return
        expected = self._in_memory(words)
        reply, expected = _without_order(words, reply), _without_order(words, expected)
        assert expected == reply, f"{words[:6]}: {expected} in memory, {reply} from the server"
        self.compared += 1


def _without_order(words: Sequence[Word], reply: Any) -> Any:
    """A server keeps the order of a hash only while all its values are short."""
    if words[0] == "SMEMBERS":
        return sorted(reply)
    if words[0] == "HGETALL":
        return _pairs(reply)
    if words[0] == "EVALSHA" and words[1] in READS_HASHES and reply is not ERROR:
        clusters, group, queues, mappings, cursor = reply
        has_all_topics = words[5] != ""
        return [clusters, _pairs(group), _pairs(queues) if has_all_topics else queues, _pairs(mappings), cursor]
    return reply


def _pairs(reply: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


@asynccontextmanager
async def mirrored(store_url: str, history: list[op.Operation], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    scripts = with_replaced_text(
        namespaces.SCRIPTS, "redis.call('TIME')", "redis.call('HMGET', KEYS[1] .. '-clock', 's', 'us')"
    )
    for name in scripts.names:
        LUA.compile(scripts[name].source.encode())
    client = MirroredClient(store_url, seed=len(history))
    await client.open()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(namespaces, "SCRIPTS", scripts)
            yield client
    finally:
        await client.close()


async def check_replies(store_url: str, history: list[op.Operation], monkeypatch: pytest.MonkeyPatch) -> None:
    async with mirrored(store_url, history, monkeypatch) as client, fresh_namespace(client) as namespace:
        comparison = await Comparison.begin(namespace, PlainWorker(namespace))
        await comparison.run(history)
        await comparison.repeat_everything()
        await client.call("XRANGE", namespace.keys.changes, "-", "+")
        assert client.compared > 4  # also of a history that does nothing


@given(op.histories)
@settings(quick, max_examples=40)
async def test_each_reply_is_that_of_a_real_server(
    store_url: str, monkeypatch: pytest.MonkeyPatch, history: list[op.Operation]
) -> None:
    await check_replies(store_url, history, monkeypatch)


@pytest.mark.slow
@given(op.histories)
@thorough
async def test_each_reply_is_that_of_a_real_server_in_many_histories(
    store_url: str, monkeypatch: pytest.MonkeyPatch, history: list[op.Operation]
) -> None:
    await check_replies(store_url, history, monkeypatch)


@given(op.histories)
@settings(quick, max_examples=15)
async def test_the_registry_gets_the_replies_of_a_real_server(
    store_url: str, monkeypatch: pytest.MonkeyPatch, history: list[op.Operation]
) -> None:
    async with (
        mirrored(store_url, history, monkeypatch) as client,
        fresh_namespace(client) as namespace,
        whole_worker(namespace) as worker,
    ):
        comparison = await Comparison.begin(namespace, worker)
        await comparison.run(history)
