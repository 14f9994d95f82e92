"""Places in the stream, found with probes of one entry.

Invariant of the stream: the id of an entry is `<ms>-<version>`; along the stream ms never falls and the version rises
by one. Entries may be gone (trimmed, deleted), so a *place* need not be the id of an entry that exists: the place of
version N is an id with every entry up to N at or before it, and every later one behind it. That is all a reader
needs, and it stays true when entries go while we look.

One stream of a namespace in the store: where it begins and ends, what lies in between.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from redis import RedisCluster
from redis.exceptions import RedisClusterException, RedisError, ResponseError

from routebook_pipeline.errors import HistoryForkError, WrongUsageError
from routebook_pipeline.source.address import Client, as_it_came, open_client, unreachable


class EntryId(NamedTuple):
    """Compares as the stream does."""

    ms: int
    version: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.version}"

    @staticmethod
    def parse(text: str | bytes) -> "EntryId":
        """Raises ValueError on anything but `<ms>-<version>`."""
        ms, separator, version = (text.decode() if isinstance(text, bytes) else text).partition("-")
        if not (separator and ms.isdecimal() and version.isdecimal()):
            raise ValueError(f"{text!r} is not the id of an entry, which is <ms>-<version>, both numbers")
        return EntryId(int(ms), int(version))


BEGINNING: Final = EntryId(0, 0)
"""Before every entry."""

Probe = Callable[[EntryId], EntryId | None]
"""The id of the first entry at or after a place; None when there is none."""


def find_position(probe: Probe, version: int, low_ms: int, high_ms: int) -> EntryId:
    """The place of `version`, which lies between the two times: its entry's own id when that exists.

    Halving, for an id begins with a time and only the second part is known: the largest ms whose first entry is not
    beyond the version. Entries of that version or below are then at or before `<ms>-<version>`, the others behind it.
    """
    while low_ms < high_ms:
        middle = (low_ms + high_ms + 1) // 2
        found = probe(EntryId(middle, 0))
        if found is not None and found.version <= version:
            low_ms = middle
        else:
            high_ms = middle - 1
    return EntryId(low_ms, version)


def cut(probe: Probe, start: EntryId, end: EntryId, entries_each: int) -> list[tuple[EntryId, EntryId]]:
    """Ranges (exclusive, inclusive] that follow one another from `start` to `end`, of equal numbers of versions, each
    at most `entries_each`.
    """
    versions = end.version - start.version
    if versions <= 0:
        return []
    parts = -(-versions // entries_each)
    places = [start]
    for part in range(1, parts):
        places.append(find_position(probe, start.version + versions * part // parts, places[-1].ms, end.ms))
    places.append(end)
    return list(pairwise(places))


CHANGES: Final = "changes"
PULSE: Final = "pulse"
STREAMS: Final = (CHANGES, PULSE)
DEFAULT_URL_ENV: Final = "ROUTEBOOK_REDIS_URL"


def key_of(namespace: str, name: str) -> str:
    """As the service builds it. The braces are part of the key: all of a namespace lies in one slot of a cluster."""
    return f"rb:{{{namespace}}}:{name}"


@dataclass(frozen=True)
class StreamEnd:
    """How far the stream goes, and when that was so."""

    id: EntryId
    """Of the last entry ever appended, also when it was deleted; 0-0 when there was none."""
    now_ms: int
    """The store's clock just before: what is appended later has no earlier time, unless that clock steps back."""

    @property
    def version(self) -> int:
        return self.id.version


class StreamReader:
    """Connects at the first question. Raises UnreachableError (3) when the store cannot be asked, and WrongUsageError
    (2) when the variable holds no address. Not for several threads at a time.
    """

    def __init__(self, url_env: str, namespace: str, stream: str = CHANGES) -> None:
        self.url_env, self.namespace = url_env, namespace
        self.key = key_of(namespace, stream)
        self._client: Client | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Connections stay where they are."""
        return {**self.__dict__, "_client": None}

    def newest(self) -> StreamEnd:
        now_ms = self._now_ms()
        return StreamEnd(self._last_generated(), now_ms)

    def first(self) -> EntryId | None:
        """Of the entries that are there."""
        return self.first_at(BEGINNING)

    def first_at(self, place: EntryId) -> EntryId | None:
        """Of those at or after `place`."""
        return self._one("XRANGE", place, "+")

    def first_behind(self, place: EntryId) -> EntryId | None:
        return self._one("XRANGE", f"({place}", "+")

    def last_until(self, place: EntryId) -> EntryId | None:
        """The last of those at or before `place`."""
        return self._one("XREVRANGE", place, "-")

    def continues(self, place: EntryId, newest: EntryId | None = None) -> bool:
        """Whether this is the history that was read up to `place`, when what lies around it says so: a store that lost
        its tail uses the versions again, at other times. `newest`: of the stream, if it was asked before.
        """
        newest = newest or self._last_generated()
        behind, before = self.first_behind(place), self.last_until(place)
        return (
            newest.version >= place.version
            and (newest.version > place.version or newest == place)
            and (behind is None or behind.version > place.version)
            and (before is None or before.version < place.version or before == place)
        )

    def refuse_fork(self, place: EntryId, newest: EntryId) -> None:
        if not self.continues(place, newest):
            raise HistoryForkError(self.namespace, place.version, newest.version)

    def earliest(self) -> EntryId:
        """The place just before the first entry that is there: what was trimmed earlier is no loss of this reader."""
        first = self.first()
        if first is not None:
            return EntryId(first.ms, first.version - 1)
        return self._last_generated()

    def entries(self, start: EntryId, end: EntryId, count: int) -> list[Any]:
        """Behind `start`, up to `end`, as the reply has them: [id, [field, value, …]]."""
        reply: list[Any] = self._ask("XRANGE", self.key, f"({start}", str(end), "COUNT", count)
        return as_it_came(reply)

    def write_reader_position(self, reader: str, version: int) -> None:
        """Everything up to `version` is held safely by `reader`; the service need not keep it for us."""
        self._ask("HSET", key_of(self.namespace, "readers"), reader, f"{version} {self._now_ms()}")

    def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        client.close()
        if not isinstance(client, RedisCluster):
            sentinel = getattr(client.connection_pool, "sentinel_manager", None)
            client.connection_pool.disconnect()
            for asked in getattr(sentinel, "sentinels", ()):
                asked.close()

    def __enter__(self) -> "StreamReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _last_generated(self) -> EntryId:
        """Not the last entry that exists: a deleted last entry would hide."""
        try:
            about = self._ask("XINFO STREAM", self.key)
        except ResponseError as error:
            if "no such key" in str(error):
                return BEGINNING
            raise unreachable(error) from error
        return EntryId.parse(about["last-generated-id"])

    def _now_ms(self) -> int:
        client = self._connected()
        if isinstance(client, RedisCluster):
            # Not of any node: each has a clock of its own.
            asked: Any = client
            node = asked.get_node_from_key(self.key)
            seconds, microseconds = self._guarded(lambda: asked.execute_command("TIME", target_nodes=node))
        else:
            seconds, microseconds = self._ask("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    def _one(self, command: str, start: EntryId | str, end: str) -> EntryId | None:
        reply = self._ask(command, self.key, str(start), end, "COUNT", 1)
        return EntryId.parse(reply[0][0]) if reply else None

    def _ask(self, *words: str | int) -> Any:
        client: Any = self._connected()
        return self._guarded(lambda: client.execute_command(*words))

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except ResponseError as error:
            if "no such key" in str(error):
                raise
            raise unreachable(error) from error
        except (RedisError, RedisClusterException, OSError) as error:
            raise unreachable(error) from error

    def _connected(self) -> Client:
        if self._client is None:
            address = os.environ.get(self.url_env, "")
            if not address:
                raise WrongUsageError(
                    f"The variable {self.url_env} holds no address of a store. Set it, here and on the executors, or "
                    "name another variable with the option url_env."
                )
            self._client = self._guarded(lambda: open_client(address))
        return self._client
