"""The values of a store, and the commands on them that Routebook uses. What they reply is what Redis replies."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, cast

ENTRIES_PER_NODE: Final = 100
"""`stream-node-max-entries`: XTRIM with `~` removes whole nodes only."""


class CommandError(Exception):
    """An error reply. Its text begins with the code."""


class Status(bytes):
    """A status reply such as OK. Lua sees it as a table with the field `ok`."""


OK: Final = Status(b"OK")


class SetValue(dict[bytes, None]):
    """A set that keeps the order of insertion."""


class SortedSet:
    __slots__ = ("_sorted", "scores")

    def __init__(self, scores: dict[bytes, float] | None = None) -> None:
        self.scores: dict[bytes, float] = scores or {}
        self._sorted: list[tuple[float, bytes]] | None = None

    def changed(self) -> None:
        self._sorted = None

    def in_order(self) -> list[tuple[float, bytes]]:
        if self._sorted is None:
            self._sorted = sorted((score, member) for member, score in self.scores.items())
        return self._sorted

    def between(self, low: bytes, high: bytes) -> list[tuple[float, bytes]]:
        (first, excludes_first), (last, excludes_last) = _bound(low), _bound(high)
        return [
            (score, member)
            for score, member in self.in_order()
            if (score > first if excludes_first else score >= first)
            and (score < last if excludes_last else score <= last)
        ]


EntryId = tuple[int, int]


@dataclass(slots=True)
class Stream:
    entries: list[tuple[EntryId, list[bytes]]] = field(default_factory=list)
    last: EntryId = (0, 0)
    removed: int = 0
    """Entries that were removed from the front. Nodes begin at multiples of their size, counted from the first entry
    ever added.
    """


Value = bytes | dict[bytes, bytes] | SetValue | SortedSet | Stream


class Commands:
    """One method a command, with its arguments as bytes."""

    def __init__(self, clock: Callable[[], int], entries_per_node: int) -> None:
        self._clock = clock
        self._frozen_ms: int | None = None
        """The time that a running script sees."""
        self.values: dict[bytes, Value] = {}
        self.appended: set[bytes] = set()
        """Streams that have got entries since the caller last cleared this."""
        self._expiries: dict[bytes, int] = {}
        self._entries_per_node = entries_per_node

    def now_ms(self) -> int:
        """The store's clock."""
        return self._clock() if self._frozen_ms is None else self._frozen_ms

    def _value(self, key: bytes) -> Value | None:
        if key in self._expiries and self._expiries[key] <= self.now_ms():
            self._delete(key)
        return self.values.get(key)

    def _put(self, key: bytes, value: Value) -> None:
        before = self.values.get(key)
        self.values[key] = value
        if type(before) is not type(value):
            self._type_changed(key, type(value))

    def _delete(self, key: bytes) -> bool:
        self._expiries.pop(key, None)
        if self.values.pop(key, None) is None:
            return False
        self._type_changed(key, None)
        return True

    def _type_changed(self, key: bytes, kind: type | None) -> None:
        """Called when a key gets a value of another type, or is deleted."""

    def _hash(self, key: bytes) -> dict[bytes, bytes] | None:
        value = self._value(key)
        if value is None:
            return None
        if type(value) is not dict:
            raise WRONG_TYPE
        return cast("dict[bytes, bytes]", value)

    def _set(self, key: bytes) -> SetValue | None:
        value = self._value(key)
        if value is not None and type(value) is not SetValue:
            raise WRONG_TYPE
        return value

    def _zset(self, key: bytes) -> SortedSet | None:
        value = self._value(key)
        if value is not None and type(value) is not SortedSet:
            raise WRONG_TYPE
        return value

    def _stream(self, key: bytes) -> Stream | None:
        value = self._value(key)
        if value is not None and type(value) is not Stream:
            raise WRONG_TYPE
        return value

    # -- keys

    def time(self) -> list[bytes]:
        ms = self.now_ms()
        return [b"%d" % (ms // 1000), b"%d" % (ms % 1000 * 1000)]

    def _type(self, key: bytes) -> Status:
        return TYPE_NAMES[type(self._value(key))]

    def _exists(self, *keys: bytes) -> int:
        return sum(self._value(key) is not None for key in keys)

    def _del(self, *keys: bytes) -> int:
        return sum(self._value(key) is not None and self._delete(key) for key in keys)

    def _rename(self, source: bytes, target: bytes) -> Status:
        value = self._value(source)
        if value is None:
            raise CommandError("ERR no such key")
        expiry = self._expiries.pop(source, None)
        self._delete(source)
        self._delete(target)
        self._put(target, value)
        if expiry is not None:
            self._expiries[target] = expiry
        return OK

    def _pexpire(self, key: bytes, ms: bytes) -> int:
        if self._value(key) is None:
            return 0
        if int(ms) <= 0:
            self._delete(key)
        else:
            self._expiries[key] = self.now_ms() + int(ms)
        return 1

    def _pttl(self, key: bytes) -> int:
        if self._value(key) is None:
            return -2
        return self._expiries[key] - self.now_ms() if key in self._expiries else -1

    def _persist(self, key: bytes) -> int:
        return int(self._value(key) is not None and self._expiries.pop(key, None) is not None)

    def _get(self, key: bytes) -> bytes | None:
        value = self._value(key)
        if value is not None and type(value) is not bytes:
            raise WRONG_TYPE
        return value

    def _set_string(self, key: bytes, text: bytes, *options: bytes) -> Status:
        self._expiries.pop(key, None)
        self._put(key, text)
        if options:
            assert options[0].upper() == b"PX", options
            self._expiries[key] = self.now_ms() + int(options[1])
        return OK

    def _setnx(self, key: bytes, text: bytes) -> int:
        if self._value(key) is not None:
            return 0
        self._put(key, text)
        return 1

    # -- hashes

    def _hget(self, key: bytes, name: bytes) -> bytes | None:
        found = self._hash(key)
        return found.get(name) if found else None

    def _hmget(self, key: bytes, *names: bytes) -> list[bytes | None]:
        found = self._hash(key) or {}
        return [found.get(name) for name in names]

    def _hgetall(self, key: bytes) -> list[bytes]:
        return [word for pair in (self._hash(key) or {}).items() for word in pair]

    def _hlen(self, key: bytes) -> int:
        return len(self._hash(key) or ())

    def _hexists(self, key: bytes, name: bytes) -> int:
        return int(name in (self._hash(key) or ()))

    def _hset(self, key: bytes, *pairs: bytes) -> int:
        found = self._hash(key)
        if found is None:
            self._put(key, found := {})
        before = len(found)
        found.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(found) - before

    def _hsetnx(self, key: bytes, name: bytes, text: bytes) -> int:
        if name in (self._hash(key) or ()):
            return 0
        return self._hset(key, name, text)

    def _hdel(self, key: bytes, *names: bytes) -> int:
        found = self._hash(key)
        if found is None:
            return 0
        removed = sum(found.pop(name, None) is not None for name in names)
        if not found:
            self._delete(key)
        return removed

    def _hincrby(self, key: bytes, name: bytes, by: bytes) -> int:
        number = int(self._hget(key, name) or b"0") + int(by)
        self._hset(key, name, b"%d" % number)
        return number

    def _hscan(self, key: bytes, cursor: bytes, *options: bytes) -> list[Any]:
        return [b"0", self._hgetall(key)]

    # -- sets

    def _sadd(self, key: bytes, *members: bytes) -> int:
        found = self._set(key)
        if found is None:
            self._put(key, found := SetValue())
        before = len(found)
        found.update(dict.fromkeys(members))
        return len(found) - before

    def _srem(self, key: bytes, *members: bytes) -> int:
        found = self._set(key)
        if found is None:
            return 0
        before = len(found)
        for member in members:
            found.pop(member, None)
        removed = before - len(found)
        if not found:
            self._delete(key)
        return removed

    def _scard(self, key: bytes) -> int:
        return len(self._set(key) or ())

    def _sismember(self, key: bytes, member: bytes) -> int:
        return int(member in (self._set(key) or ()))

    def _smembers(self, key: bytes) -> list[bytes]:
        return list(self._set(key) or ())

    def _sscan(self, key: bytes, cursor: bytes, *options: bytes) -> list[Any]:
        return [b"0", self._smembers(key)]

    # -- sorted sets

    def _zadd(self, key: bytes, *words: bytes) -> int:
        flags = set()
        at = 0
        while words[at] in _ZADD_FLAGS:
            flags.add(words[at])
            at += 1
        found = self._zset(key)
        scores = found.scores if found is not None else {}
        added = changed = 0
        for score_text, member in zip(words[at::2], words[at + 1 :: 2], strict=True):
            score, known = float(score_text), scores.get(member)
            if known is None:
                if b"XX" in flags:
                    continue
                added += 1
            elif (
                b"NX" in flags
                or (b"GT" in flags and score <= known)
                or (b"LT" in flags and score >= known)
                or score == known
            ):
                continue
            scores[member] = score
            changed += 1
        if found is None and scores:
            self._put(key, SortedSet(scores))
        elif found is not None:
            found.changed()
        return changed if b"CH" in flags else added

    def _zrem(self, key: bytes, *members: bytes) -> int:
        found = self._zset(key)
        if found is None:
            return 0
        removed = sum(found.scores.pop(member, None) is not None for member in members)
        if removed:
            found.changed()
        if not found.scores:
            self._delete(key)
        return removed

    def _zscore(self, key: bytes, member: bytes) -> bytes | None:
        found = self._zset(key)
        score = found.scores.get(member) if found else None
        return None if score is None else _number(score)

    def _zcard(self, key: bytes) -> int:
        found = self._zset(key)
        return len(found.scores) if found else 0

    def _zcount(self, key: bytes, low: bytes, high: bytes) -> int:
        found = self._zset(key)
        return len(found.between(low, high)) if found else 0

    def _zrange(self, key: bytes, first: bytes, last: bytes, *options: bytes) -> list[bytes]:
        found = self._zset(key)
        members = found.in_order() if found else []
        start, end = _index(first, len(members)), _index(last, len(members))
        return _members(members[max(start, 0) : end + 1], with_scores=b"WITHSCORES" in options)

    def _zrangebyscore(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[bytes]:
        found = self._zset(key)
        members = found.between(low, high) if found else []
        if b"LIMIT" in options:
            at = options.index(b"LIMIT")
            offset, count = int(options[at + 1]), int(options[at + 2])
            members = members[offset:] if count < 0 else members[offset : offset + count]
        return _members(members, with_scores=b"WITHSCORES" in options)

    def _zremrangebyscore(self, key: bytes, low: bytes, high: bytes) -> int:
        found = self._zset(key)
        members = [member for _, member in found.between(low, high)] if found else []
        return self._zrem(key, *members) if members else 0

    # -- streams

    def _xadd(self, key: bytes, entry_id: bytes, *fields: bytes) -> bytes:
        found = self._stream(key)
        new = _parse_id(entry_id, 0)
        last = found.last if found is not None else (0, 0)
        if new <= last:
            raise CommandError("ERR The ID specified in XADD is equal or smaller than the target stream top item")
        if found is None:
            self._put(key, found := Stream())
        found.entries.append((new, list(fields)))
        found.last = new
        self.appended.add(key)
        return entry_id

    def _xlen(self, key: bytes) -> int:
        found = self._stream(key)
        return len(found.entries) if found else 0

    def _xrange(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[list[Any]]:
        found = self._entries_between(key, low, high)
        return [_entry(one) for one in (found[: int(options[1])] if options else found)]

    def _xrevrange(self, key: bytes, high: bytes, low: bytes, *options: bytes) -> list[list[Any]]:
        found = self._entries_between(key, low, high)[::-1]
        return [_entry(one) for one in (found[: int(options[1])] if options else found)]

    def _entries_between(self, key: bytes, low: bytes, high: bytes) -> list[tuple[EntryId, list[bytes]]]:
        found = self._stream(key)
        if found is None:
            return []
        ids = [entry_id for entry_id, _ in found.entries]
        first = 0 if low == b"-" else bisect_left(ids, _parse_id(low, 0))
        end = len(ids) if high == b"+" else bisect_right(ids, _parse_id(high, 2**64))
        return found.entries[first:end]

    def read_stream(self, *words: bytes) -> list[Any] | None:
        """XREAD of one stream. BLOCK is the caller's."""
        options = {words[at].upper(): words[at + 1] for at in range(0, len(words) - 3, 2)}
        key, after = words[-2:]
        found = self._stream(key)
        if found is None or found.last <= _parse_id(after, 0):
            return None
        ids = [entry_id for entry_id, _ in found.entries]
        first = bisect_right(ids, _parse_id(after, 0))
        entries = found.entries[first : first + int(options.get(b"COUNT", b"1000000"))]
        return [[key, [_entry(one) for one in entries]]] if entries else None

    def _xtrim(self, key: bytes, *words: bytes) -> int:
        found = self._stream(key)
        assert words[:2] == (b"MINID", b"~"), words
        if found is None:
            return 0
        limit = int(words[4]) if len(words) > 3 else 100 * self._entries_per_node
        older = bisect_left([entry_id for entry_id, _ in found.entries], _parse_id(words[2], 0))
        removed = 0
        while removed < len(found.entries):
            node = self._entries_per_node - (found.removed + removed) % self._entries_per_node
            node = min(node, len(found.entries) - removed)
            if removed + node > min(older, limit):
                break
            removed += node
        del found.entries[:removed]
        found.removed += removed
        return removed


WRONG_TYPE: Final = CommandError("WRONGTYPE Operation against a key holding the wrong kind of value")
_ZADD_FLAGS: Final = frozenset({b"NX", b"XX", b"GT", b"LT", b"CH"})
TYPE_NAMES: Final[dict[type, Status]] = {
    type(None): Status(b"none"),
    bytes: Status(b"string"),
    dict: Status(b"hash"),
    SetValue: Status(b"set"),
    SortedSet: Status(b"zset"),
    Stream: Status(b"stream"),
}
COMMANDS: Final[dict[bytes, Callable[..., Any]]] = {
    b"TIME": Commands.time,
    b"TYPE": Commands._type,
    b"EXISTS": Commands._exists,
    b"DEL": Commands._del,
    b"UNLINK": Commands._del,
    b"RENAME": Commands._rename,
    b"PEXPIRE": Commands._pexpire,
    b"PTTL": Commands._pttl,
    b"PERSIST": Commands._persist,
    b"GET": Commands._get,
    b"SET": Commands._set_string,
    b"SETNX": Commands._setnx,
    b"HGET": Commands._hget,
    b"HMGET": Commands._hmget,
    b"HGETALL": Commands._hgetall,
    b"HLEN": Commands._hlen,
    b"HEXISTS": Commands._hexists,
    b"HSET": Commands._hset,
    b"HSETNX": Commands._hsetnx,
    b"HDEL": Commands._hdel,
    b"HINCRBY": Commands._hincrby,
    b"HSCAN": Commands._hscan,
    b"SADD": Commands._sadd,
    b"SREM": Commands._srem,
    b"SCARD": Commands._scard,
    b"SISMEMBER": Commands._sismember,
    b"SMEMBERS": Commands._smembers,
    b"SSCAN": Commands._sscan,
    b"ZADD": Commands._zadd,
    b"ZREM": Commands._zrem,
    b"ZSCORE": Commands._zscore,
    b"ZCARD": Commands._zcard,
    b"ZCOUNT": Commands._zcount,
    b"ZRANGE": Commands._zrange,
    b"ZRANGEBYSCORE": Commands._zrangebyscore,
    b"ZREMRANGEBYSCORE": Commands._zremrangebyscore,
    b"XADD": Commands._xadd,
    b"XLEN": Commands._xlen,
    b"XRANGE": Commands._xrange,
    b"XREVRANGE": Commands._xrevrange,
    b"XREAD": Commands.read_stream,
    b"XTRIM": Commands._xtrim,
}


def copy_of(value: Value) -> Value:
    if isinstance(value, bytes):
        return value
    if isinstance(value, SetValue):
        return SetValue(value)
    if isinstance(value, SortedSet):
        return SortedSet(dict(value.scores))
    if isinstance(value, Stream):
        return Stream(list(value.entries), value.last, value.removed)
    return dict(value)


def _number(score: float) -> bytes:
    return b"%d" % score if score == int(score) else f"{score:.17g}".encode()


def _bound(text: bytes) -> tuple[float, bool]:
    return (float(text[1:]), True) if text[:1] == b"(" else (float(text), False)


def _index(text: bytes, length: int) -> int:
    number = int(text)
    return number + length if number < 0 else number


def _members(found: Iterable[tuple[float, bytes]], *, with_scores: bool) -> list[bytes]:
    if not with_scores:
        return [member for _, member in found]
    return [word for score, member in found for word in (member, _number(score))]


def _parse_id(text: bytes, default: int) -> EntryId:
    ms, dash, number = text.partition(b"-")
    return int(ms), int(number) if dash else default


def _entry(entry: tuple[EntryId, list[bytes]]) -> list[Any]:
    (ms, number), fields = entry
    return [b"%d-%d" % (ms, number), list(fields)]
