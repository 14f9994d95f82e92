"""One stream of a namespace in the store: its positions, its end, and the entries between two positions.

Invariant of the stream: an entry's id is `<ms>-<version>`; along the stream, ms never decreases and the version rises
by one. Entries may be missing (trimmed or deleted), so a *position* need not be the id of an existing entry. The
position of version N is any id with every entry up to N at or before it and every later entry after it. This stays
true when entries disappear during a search, and a reader needs nothing more.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from redis import RedisCluster
from redis.exceptions import RedisClusterException, RedisError, ResponseError

from routebook_pipeline.errors import HistoryForkError, WrongUsageError
from routebook_pipeline.source.address import (
    REPLY_TIMEOUT_S,
    Client,
    as_unparsed_entries,
    open_client,
    store_unreachable,
)

CHANGES: Final = "changes"
PULSE: Final = "pulse"
"""The stream of heartbeat gaps."""
STREAMS: Final = (CHANGES, PULSE)
DEFAULT_URL_ENV: Final = "ROUTEBOOK_REDIS_URL"


_HISTORY_BYTES: Final = 6
"""The lake's log keeps numbers of 8 bytes with a sign."""


class EntryId(NamedTuple):
    """Sorts in stream order."""

    ms: int
    version: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.version}"

    @staticmethod
    def parse(text: str | bytes) -> "EntryId":
        """ValueError unless the text is `<ms>-<version>`."""
        ms, separator, version = (text.decode() if isinstance(text, bytes) else text).partition("-")
        if not (separator and ms.isdecimal() and version.isdecimal()):
            raise ValueError(f"{text!r} is not the id of an entry, which is <ms>-<version>, both numbers")
        return EntryId(int(ms), int(version))


BEGINNING: Final = EntryId(0, 0)
"""Before every entry."""

FirstAt = Callable[[EntryId], EntryId | None]
"""Finds the id of the first entry at or after a position; None when there is none."""


def find_position(first_at: FirstAt, version: int, low_ms: int, high_ms: int) -> EntryId:
    """The position of `version`, given that it lies between the two times: the id of its entry, if that exists.

    Only the second part of the id is known, so this is a binary search over its first part: for the largest ms whose
    first entry has at most this version. All entries up to the version are then at or before `<ms>-<version>`.
    """
    while low_ms < high_ms:
        middle = (low_ms + high_ms + 1) // 2
        found = first_at(EntryId(middle, 0))
        if found is not None and found.version <= version:
            low_ms = middle
        else:
            high_ms = middle - 1
    return EntryId(low_ms, version)


def split_range(first_at: FirstAt, start: EntryId, end: EntryId, max_entries: int) -> list[tuple[EntryId, EntryId]]:
    """Splits (start, end] into consecutive ranges of equal length, each of at most `max_entries` versions."""
    versions = end.version - start.version
    if versions <= 0:
        return []
    parts = -(-versions // max_entries)
    positions = [start]
    for part in range(1, parts):
        version = start.version + versions * part // parts
        positions.append(find_position(first_at, version, positions[-1].ms, end.ms))
    positions.append(end)
    return list(pairwise(positions))


def key_of(namespace: str, name: str) -> str:
    """Same as in the service. The braces are part of the key and put a namespace into one slot of a Redis Cluster."""
    return f"rb:{{{namespace}}}:{name}"


@dataclass(frozen=True)
class StreamEnd:
    """The end of a stream at one moment."""

    id: EntryId
    """Last id ever appended, even if that entry was deleted; 0-0 for a stream that never had one."""
    now_ms: int
    """Store clock just before: entries appended later have no earlier time, unless the clock is set back."""

    @property
    def version(self) -> int:
        return self.id.version


class StreamReader:
    """Connects on first use. Raises UnreachableError (exit code 3) when the store does not answer, and WrongUsageError
    (2) when the variable holds no valid address. Not safe for use by several threads at once.
    """

    def __init__(
        self, url_env: str, namespace: str, stream: str = CHANGES, *, reply_timeout_s: float = REPLY_TIMEOUT_S
    ) -> None:
        self.url_env, self.namespace = url_env, namespace
        self._reply_timeout_s = reply_timeout_s
        self.key = key_of(namespace, stream)
        self._client: Client | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickled without its connection."""
        return {**self.__dict__, "_client": None}

    def newest(self) -> StreamEnd:
        now_ms = self._now_ms()
        return StreamEnd(self._last_generated(), now_ms)

    def first(self) -> EntryId | None:
        """Id of the first entry still in the stream."""
        return self.first_at(BEGINNING)

    def first_at(self, position: EntryId) -> EntryId | None:
        """Id of the first entry at or after `position`."""
        return self._first_id("XRANGE", position, "+")

    def first_after(self, position: EntryId) -> EntryId | None:
        return self._first_id("XRANGE", f"({position}", "+")

    def last_until(self, position: EntryId) -> EntryId | None:
        """Id of the last entry at or before `position`."""
        return self._first_id("XREVRANGE", position, "-")

    def history(self) -> int | None:
        """A number for the name that the store gave to its history; None if it has none. A store that was emptied, or
        that lost changes, has another name.
        """
        name = self._execute("HGET", key_of(self.namespace, "meta"), "history")
        if not name:
            return None
        text = name if isinstance(name, bytes) else str(name).encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:_HISTORY_BYTES], "big")

    def continues(self, position: EntryId, newest: EntryId | None = None, *, history: int | None = None) -> bool:
        """Whether the stream still has the history that was read up to `position`, judging by the entries around it. A
        store that lost its last changes uses their versions again, at other times.

        `newest`: last id of the stream, if the caller has just read it. `history`: its name when `position` was read.
        If it has another name now, the entry itself has to be there: a new history that has outgrown the old one, and
        was trimmed since, looks like the old one with a hole.
        """
        newest = newest or self._last_generated()
        after, before = self.first_after(position), self.last_until(position)
        if history is not None and before != position and self.history() not in (None, history):
            return False
        return (
            newest.version >= position.version
            and (newest.version > position.version or newest == position)
            and (after is None or after.version > position.version)
            and (before is None or before.version < position.version or before == position)
        )

    def refuse_fork(self, position: EntryId, newest: EntryId, *, history: int | None = None) -> None:
        """HistoryForkError unless the stream continues `position`."""
        if not self.continues(position, newest, history=history):
            raise HistoryForkError(self.namespace, position.version, newest.version)

    def earliest(self) -> EntryId:
        """The position just before the first existing entry: entries trimmed earlier are no loss of this reader."""
        first = self.first()
        if first is not None:
            return EntryId(first.ms, first.version - 1)
        return self._last_generated()

    def entries(self, start: EntryId, end: EntryId, count: int) -> list[Any]:
        """Entries of (start, end], as in the reply: [id, [field, value, …]]."""
        reply: list[Any] = self._execute("XRANGE", self.key, f"({start}", str(end), "COUNT", count)
        return as_unparsed_entries(reply)

    def write_reader_position(self, reader: str, version: int) -> None:
        """Records that `reader` has durably consumed everything up to `version`, so that the service may trim it."""
        self._execute("HSET", key_of(self.namespace, "readers"), reader, f"{version} {self._now_ms()}")

    def request_baseline(self) -> None:
        """Entries that this reader needed are gone: it can tell the present state again from a baseline on. The leader
        writes one, unless the last one is less than an hour old. A request that waits already is left.
        """
        self._execute("HSETNX", key_of(self.namespace, "meta"), "baseline_requested", f"{self._now_ms()} trimmed")

    def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        client.close()
        if not isinstance(client, RedisCluster):
            pool = client.connection_pool
            pool.disconnect()
            for sentinel in getattr(getattr(pool, "sentinel_manager", None), "sentinels", ()):
                sentinel.close()

    def __enter__(self) -> "StreamReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _last_generated(self) -> EntryId:
        """Not the id of the last existing entry: that one may have been deleted."""
        try:
            info = self._execute("XINFO STREAM", self.key)
        except ResponseError as error:
            if "no such key" in str(error):
                return BEGINNING
            raise store_unreachable(error) from error
        return EntryId.parse(info["last-generated-id"])

    def _now_ms(self) -> int:
        client = self._connect()
        if isinstance(client, RedisCluster):
            # Nodes have different clocks: the one that stamps the entries counts.
            cluster: Any = client
            node = cluster.get_node_from_key(self.key)
            seconds, microseconds = self._translate_errors(lambda: cluster.execute_command("TIME", target_nodes=node))
        else:
            seconds, microseconds = self._execute("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    def _first_id(self, command: str, start: EntryId | str, end: str) -> EntryId | None:
        reply = self._execute(command, self.key, str(start), end, "COUNT", 1)
        return EntryId.parse(reply[0][0]) if reply else None

    def _execute(self, *words: str | int) -> Any:
        client: Any = self._connect()
        return self._translate_errors(lambda: client.execute_command(*words))

    def _translate_errors(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except ResponseError as error:
            if "no such key" in str(error):
                raise
            raise store_unreachable(error) from error
        except (RedisError, RedisClusterException, OSError) as error:
            raise store_unreachable(error) from error

    def _connect(self) -> Client:
        if self._client is None:
            address = os.environ.get(self.url_env, "")
            if not address:
                raise WrongUsageError(
                    f"The variable {self.url_env} holds no address of a store. Set it, here and on the executors, or "
                    "name another variable with the option url_env."
                )
            self._client = self._translate_errors(lambda: open_client(address, self._reply_timeout_s))
        return self._client
