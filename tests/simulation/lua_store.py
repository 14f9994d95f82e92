"""A store in this process: the commands that Routebook uses, and its Lua scripts in LuaJIT, whose language is that of
Redis (Lua 5.1).

The clock is the caller's, so the store works in virtual time. Values are copied by `snapshot` and put back by
`restore`, as a failover to a replica that lags behind would. `test_lua_store` compares every reply with a real server.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lupa import luajit21 as lua

from tests.simulation.memory_values import (
    COMMANDS,
    ENTRIES_PER_NODE,
    OK,
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


_SORTED_PAIRS: Final = b"""
local next_of, sort = next, table.sort
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
"""
"""LuaJIT orders the keys of a table differently in each process, and a seed has to give the same run in all of them."""


class LuaScripts:
    """One Lua interpreter, with the scripts that it has compiled. Several stores use it, one call at a time."""

    def __init__(self) -> None:
        self._lua = lua.LuaRuntime(encoding=None, unpack_returned_tuples=False, register_eval=False)
        self._compiled: dict[bytes, Any] = {}
        self._table_from = self._lua.table_from
        self._globals = self._lua.globals()
        self._store: MemoryStore | None = None
        self._statuses: dict[bytes, Any] = {}
        self._lua.execute(_SORTED_PAIRS)
        redis = self._lua.table_from(
            {b"call": self._call, b"pcall": self._pcall, b"sha1hex": lambda text: _sha1(text).encode()}
        )
        self._globals[b"redis"] = redis
        self._globals[b"cjson"] = self._lua.table_from({b"encode": _quote, b"decode": self._decode})
        self._globals[b"bit"] = self._lua.table_from({b"band": lambda a, b: a & b, b"bnot": lambda a: ~a})

    def compile(self, source: bytes) -> bytes:
        sha1 = _sha1(source).encode()
        if sha1 not in self._compiled:
            self._compiled[sha1] = self._lua.compile(source)
        return sha1

    def run(self, store: "MemoryStore", sha1: bytes, keys: Words, arguments: Words) -> Any:
        self._globals[b"KEYS"], self._globals[b"ARGV"] = self._table_from(keys), self._table_from(arguments)
        self._store = store
        try:
            return _to_reply(self._compiled[sha1]())
        except lua.LuaError as error:
            raise CommandError(f"ERR {error}") from error

    def _call(self, command: bytes, *words: Any) -> Any:
        """`redis.call`. It runs a hundred times per script, so each microsecond counts."""
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
            table = self._statuses.get(reply)
            if table is None:
                table = self._statuses[reply] = self._table_from({b"ok": bytes(reply)})
            return table
        return self._to_lua(reply)

    def _pcall(self, command: bytes, *words: Any) -> Any:
        try:
            return self._call(command, *words)
        except CommandError as error:
            return self._table_from({b"err": str(error).encode()})

    def _to_lua(self, reply: Any) -> Any:
        if reply is None:
            return False
        if isinstance(reply, list):
            if any(one is None or isinstance(one, list) for one in reply):
                reply = [self._to_lua(one) for one in reply]
            return self._table_from(reply)
        return reply

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
        super().__init__(clock, entries_per_node)
        self.loaded: set[bytes] = set()
        """Scripts that EVALSHA finds."""
        self._scripts = scripts

    # -- the state as a whole

    def snapshot(self) -> Snapshot:
        return Snapshot({key: copy_of(value) for key, value in self.values.items()}, dict(self._expiries))

    def restore(self, snapshot: Snapshot) -> None:
        """The store has the state of a snapshot, and no scripts."""
        self.values = {key: copy_of(value) for key, value in snapshot.values.items()}
        self._expiries = dict(snapshot.expiries)
        self.loaded.clear()

    # -- commands

    def execute(self, *words: str | bytes | int | float) -> Any:
        """One command of a client. Raises CommandError for an error reply."""
        command, *arguments = map(_word, words)
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


def _word(word: str | bytes | int | float) -> bytes:
    if type(word) is bytes:
        return word
    return str(word).encode()


def _argument(word: Any) -> bytes:
    """An argument of `redis.call`: Lua has strings and numbers."""
    if type(word) is bytes:
        return word
    if isinstance(word, bool) or not isinstance(word, int | float):
        raise CommandError("ERR Lua redis lib command arguments must be strings or integers")
    return b"%d" % word if word == int(word) else f"{word:.17g}".encode()


def _to_reply(value: Any) -> Any:
    """From what a script returns. A list ends at its first nil, false becomes nil, and numbers lose their fraction."""
    if value is None or value is False:
        return None
    if value is True:
        return 1
    if isinstance(value, bytes):
        return value
    if isinstance(value, int | float):
        return int(value)
    replies: list[Any] = []
    at = 1
    while (one := value[at]) is not None:
        replies.append(_to_reply(one))
        at += 1
    if at == 1 and (error := value[b"err"]) is not None:
        raise CommandError(error.decode())
    return replies


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
