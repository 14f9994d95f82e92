"""A store in this process: the commands that Routebook uses, and its Lua scripts in LuaJIT, whose language is that of
Redis (Lua 5.1).

The clock is the caller's, so the store works in virtual time. Values are copied by `snapshot` and put back by
`restore`, as a failover to a replica that lags behind would. `test_lua_store` compares every reply with a real server.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from lupa import luajit21 as lua

from tests.simulation.memory_values import (
    COMMANDS,
    ENTRIES_PER_NODE,
    OK,
    TYPE_NAMES,
    CommandError,
    Commands,
    Status,
    Value,
    copy_of,
)

Words = Sequence[bytes]
Clock = Callable[[], int]
"""The store's clock, in milliseconds."""


@dataclass(slots=True)
class Snapshot:
    values: dict[bytes, Value]
    expiries: dict[bytes, int]


_PRELUDE: Final = b"""
local next_of, sort, unpack, type, format = next, table.sort, unpack, type, string.format

function pairs(values)
  local keys, count, at = {}, 0, 0
  for key in next_of, values do
    count = count + 1
    keys[count] = key
  end
  sort(keys)  -- the keys of a table are all strings, or all numbers
  return function()
    at = at + 1
    local key = keys[at]
    return key, values[key]
  end
end

local call = redis.call  -- in Python
local kinds, handlers, time

-- Numbers become texts as Redis writes them.
local function texts(word, ...)
  if word == nil then
    return
  elseif type(word) == 'number' then
    word = format(word % 1 == 0 and '%d' or '%.17g', word)
  end
  return word, texts(...)
end

function make_handlers(of_one, of_list)
  local made = {}
  for name, handler in next_of, of_one do
    made[name] = function(...)
      local reply = handler(texts(...))
      return reply == nil and false or reply
    end
  end
  for name, handler in next_of, of_list do
    made[name] = function(...)
      return { handler(texts(...)) }
    end
  end
  return made
end

local NO_KEY = { ok = 'none' }

function redis.call(command, key, ...)
  if command == 'TYPE' then
    return kinds[key] or NO_KEY
  elseif command == 'TIME' then
    return { time[1], time[2] }
  end
  local handler = handlers[command]
  if handler then
    return handler(key, ...)
  end
  return call(command, key, ...)
end

-- How many values a list has before its first nil, and these values. -1 and the value if it is no list; -2 and the text
-- if it is an error.
function flattened(reply)
  if type(reply) ~= 'table' then
    return -1, reply
  end
  local count = 0
  while reply[count + 1] ~= nil do
    count = count + 1
  end
  if count == 0 and reply.err then
    return -2, reply.err
  end
  return count, unpack(reply, 1, count)
end

function run_script(script, store_kinds, store_handlers, seconds, microseconds, key, ...)
  kinds, handlers, time = store_kinds, store_handlers, { seconds, microseconds }
  KEYS, ARGV = { key }, { ... }
  return flattened(script())
end
"""
"""LuaJIT orders the keys of a table differently in each process, and a seed has to give the same run in all of them:
hence `pairs`. A call from Lua to Python takes longer than most commands, and two thirds of the calls ask for a key's
type. So Lua reads the types from a table of its own.
"""
_REPLY_IS_ONE_VALUE: Final = (
    *(b"GET", b"HGET", b"HEXISTS", b"HLEN", b"ZSCORE", b"ZCARD", b"ZCOUNT", b"SISMEMBER", b"SCARD", b"PTTL"),
    *(b"HSET", b"HSETNX", b"HDEL", b"HINCRBY", b"ZADD", b"ZREM", b"ZREMRANGEBYSCORE", b"SADD", b"SREM", b"PEXPIRE"),
)
_REPLY_IS_A_LIST: Final = (b"HMGET", b"HGETALL", b"SMEMBERS", b"ZRANGE", b"ZRANGEBYSCORE")


class LuaScripts:
    """One Lua interpreter, with the scripts that it has compiled. Several stores use it, one call at a time."""

    def __init__(self) -> None:
        self._lua = lua.LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False)
        self._compiled: dict[bytes, Any] = {}
        self._table_from = self._lua.table_from
        names = self._lua.globals()
        self._store: MemoryStore | None = None
        self._statuses: dict[bytes, Any] = {}
        redis = self._lua.table_from(
            {b"call": self._call, b"pcall": self._pcall, b"sha1hex": lambda text: _sha1(text).encode()}
        )
        names[b"redis"] = redis
        names[b"cjson"] = self._lua.table_from({b"encode": _quote, b"decode": self._decode})
        names[b"bit"] = self._lua.table_from({b"band": lambda a, b: a & b, b"bnot": lambda a: ~a})
        self._lua.execute(_PRELUDE)
        self._run, self._flattened = names[b"run_script"], names[b"flattened"]
        self._make_handlers = names[b"make_handlers"]

    def compile(self, source: bytes) -> bytes:
        sha1 = _sha1(source).encode()
        if sha1 not in self._compiled:
            self._compiled[sha1] = self._lua.compile(source)
        return sha1

    def table_of_types(self) -> Any:
        """Type of each key, as the reply of TYPE. A store keeps one for Lua to read."""
        return self._table_from({})

    def type_reply(self, kind: type) -> Any:
        return self._to_status(TYPE_NAMES[kind])

    def handlers_of(self, store: "MemoryStore") -> Any:
        """The store's methods for the commands that scripts call most often, which Lua calls without `_call`."""
        return self._make_handlers(
            self._table_from({name: partial(COMMANDS[name], store) for name in _REPLY_IS_ONE_VALUE}),
            self._table_from({name: partial(_unpacked, COMMANDS[name], store) for name in _REPLY_IS_A_LIST}),
        )

    def run(self, store: "MemoryStore", sha1: bytes, keys: Words, arguments: Words) -> Any:
        assert len(keys) == 1
        self._store = store
        seconds, microseconds = store.time()
        try:
            found = self._run(
                self._compiled[sha1], store.types, store.handlers, seconds, microseconds, keys[0], *arguments
            )
        except lua.LuaError as error:
            raise CommandError(f"ERR {error}") from error
        return self._to_reply(found)

    def _call(self, command: bytes, *words: Any) -> Any:
        """`redis.call`."""
        for word in words:
            if type(word) is not bytes:
                words = tuple(map(_argument, words))
                break
        handler = COMMANDS.get(command)
        if handler is None:
            raise CommandError(f"ERR unknown command {command!r}")
        reply = handler(self._store, *words)
        kind = type(reply)
        if kind is bytes or kind is int:
            return reply
        if reply is None:
            return False
        if kind is Status:
            return self._to_status(reply)
        return self._to_lua(reply)

    def _to_status(self, reply: Status) -> Any:
        table = self._statuses.get(reply)
        if table is None:
            table = self._statuses[reply] = self._table_from({b"ok": bytes(reply)})
        return table

    def _pcall(self, command: bytes, *words: Any) -> Any:
        try:
            return self._call(command, *words)
        except CommandError as error:
            return self._table_from({b"err": str(error).encode()})

    def _to_lua(self, reply: Any) -> Any:
        if type(reply) is not list:
            return False if reply is None else reply
        return self._table_from(
            [False if one is None else self._to_lua(one) if type(one) is list else one for one in reply]
        )

    def _to_reply(self, found: Any) -> Any:
        """From what `flattened` returns. False becomes nil, and numbers lose their fraction."""
        if type(found) is not tuple:
            return []  # only the length of a list that is empty
        count, *values = found
        if count == -2:
            raise CommandError(values[0].decode())
        replies = [one if type(one) is bytes else self._value_to_reply(one) for one in values]
        return replies[0] if count == -1 else replies

    def _value_to_reply(self, value: Any) -> Any:
        if value is None or value is False:
            return None
        if value is True:
            return 1
        if isinstance(value, int | float):
            return int(value)
        return self._to_reply(self._flattened(value))

    def _decode(self, text: bytes) -> Any:
        return self._json_to_lua(json.loads(text))

    def _json_to_lua(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._table_from({key.encode(): self._json_to_lua(one) for key, one in value.items()})
        if isinstance(value, list):
            return self._table_from([self._json_to_lua(one) for one in value])
        return value.encode() if isinstance(value, str) else value


class MemoryStore(Commands):
    def __init__(self, clock: Clock, scripts: LuaScripts, *, entries_per_node: int = ENTRIES_PER_NODE) -> None:
        self.types = scripts.table_of_types()
        """As Lua sees them."""
        super().__init__(clock, entries_per_node)
        self.handlers = scripts.handlers_of(self)
        self.loaded: set[bytes] = set()
        """Scripts that EVALSHA finds."""
        self._scripts = scripts

    def _type_changed(self, key: bytes, kind: type | None) -> None:
        self.types[key] = None if kind is None else self._scripts.type_reply(kind)

    # -- the state as a whole

    def snapshot(self) -> Snapshot:
        return Snapshot({key: copy_of(value) for key, value in self.values.items()}, dict(self._expiries))

    def restore(self, snapshot: Snapshot) -> None:
        """The store has the state of a snapshot, and no scripts."""
        for key in list(self.values):
            self._delete(key)
        for key, value in snapshot.values.items():
            self._put(key, copy_of(value))
        self._expiries = dict(snapshot.expiries)
        self.loaded.clear()

    # -- commands

    def execute(self, *words: str | bytes | int | float) -> Any:
        """One command of a client. Raises CommandError for an error reply."""
        command, *arguments = [word if type(word) is bytes else str(word).encode() for word in words]
        if command == b"EVALSHA" or command == b"EVAL":
            return self._evaluate(command, arguments)
        if command == b"SCRIPT":
            return self._script(*arguments)
        handler = COMMANDS.get(command)
        if handler is None:
            raise CommandError(f"ERR unknown command {command!r}")
        return handler(self, *arguments)

    def _evaluate(self, command: bytes, arguments: Words) -> Any:
        script, number, *rest = arguments
        if command == b"EVAL":
            script = self._scripts.compile(script)
            self.loaded.add(script)
        elif script not in self.loaded:
            raise CommandError("NOSCRIPT No matching script.")
        keys = int(number)
        # The clock stands still while a script runs, and no key expires.
        self._frozen_ms = self._clock()
        for key in [key for key, end in self._expiries.items() if end <= self._frozen_ms]:
            self._delete(key)
        try:
            return self._scripts.run(self, script, rest[:keys], rest[keys:])
        finally:
            self._frozen_ms = None

    def _script(self, command: bytes, source: bytes = b"") -> bytes | Status:
        if command == b"FLUSH":
            self.loaded.clear()
            return OK
        assert command == b"LOAD", command
        sha1 = self._scripts.compile(source)
        self.loaded.add(sha1)
        return sha1


def _unpacked(handler: Callable[..., Any], store: MemoryStore, *words: bytes) -> tuple[Any, ...]:
    return tuple([False if one is None else one for one in handler(store, *words)])


def _argument(word: Any) -> bytes:
    """An argument of `redis.call`: Lua has strings and numbers."""
    if type(word) is bytes:
        return word
    if isinstance(word, bool) or not isinstance(word, int | float):
        raise CommandError("ERR Lua redis lib command arguments must be strings or integers")
    return b"%d" % word if word == int(word) else f"{word:.17g}".encode()


_ESCAPES: Final = {
    **{code: f"\\u{code:04x}".encode() for code in [*range(32), 127]},
    ord('"'): b'\\"',
    ord("\\"): b"\\\\",
    ord("/"): b"\\/",
    8: b"\\b",
    9: b"\\t",
    10: b"\\n",
    12: b"\\f",
    13: b"\\r",
}


def _quote(text: bytes) -> bytes:
    if not isinstance(text, bytes):
        raise CommandError("ERR only strings are encoded")
    if not any(code in _ESCAPES for code in text):
        return b'"' + text + b'"'
    return b'"' + b"".join(_ESCAPES.get(code) or bytes((code,)) for code in text) + b'"'


def _sha1(text: bytes) -> str:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()
