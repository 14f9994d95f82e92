"""Helpers for the tests of the Lua scripts: reading the history and single fields, and changing their limits."""

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from routebook.model.names import Caller
from routebook.store.history import Change, read_changes
from routebook.store.namespace import Namespace, Script, ScriptSet
from routebook.store.removal import Brake

CALLER = Caller("worker-1", "127.0.0.1:40000")
NO_BRAKE = Brake(percent=100, minimum=1, window_ms=0)
"""Nothing is held: more than all brokers cannot be removed."""


async def history(namespace: Namespace, *, after: int = 0) -> list[Change]:
    """All changes, or those after a version."""
    return [change for change in await read_changes(namespace, (0, 0), count=10_000) if change.version > after]


async def kinds(namespace: Namespace, *, after: int = 0) -> list[str]:
    return [change.kind for change in await history(namespace, after=after)]


async def newest(namespace: Namespace) -> Change:
    return (await history(namespace))[-1]


async def raw_payload(namespace: Namespace, index: int = -1) -> Any:
    entries = await namespace.client.call("XRANGE", namespace.keys.changes, "-", "+")
    return json.loads(entries[index][1][1])


async def meta(namespace: Namespace, field: str) -> int:
    return int(await namespace.client.call("HGET", namespace.keys.meta, field) or 0)


async def deadline_of(namespace: Namespace, instance_name: str) -> int:
    return int(await namespace.client.call("ZSCORE", namespace.keys.table("deadlines"), instance_name))


async def make_due(namespace: Namespace, *instance_names: str) -> None:
    """Moves the deadlines of these instances into the past."""
    for instance_name in instance_names:
        await namespace.client.call("ZADD", namespace.keys.table("deadlines"), "XX", 1, instance_name)


async def make_old(namespace: Namespace) -> None:
    """As if the first instance had registered long ago: those that register from now on are not established before they
    have sent heartbeats for a while.
    """
    await namespace.client.call("HSET", namespace.keys.meta, "began_at", 1)


def with_text(scripts: ScriptSet, name: str, former: str, changed: str) -> ScriptSet:
    """The same scripts, with another text in one of them."""
    source = scripts[name].source
    assert source.count(former) == 1, f"{name} has {former!r} {source.count(former)} times"
    source = source.replace(former, changed)
    digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return ScriptSet({one: scripts[one] for one in scripts.names} | {name: Script(name, source, digest)})


def with_lua_limit(scripts: ScriptSet, name: str, value: int) -> ScriptSet:
    """The same scripts, with another value of a constant that limits the size of a batch."""
    return _changed(scripts, lambda text: re.sub(rf"^local {name} = \d+$", f"local {name} = {value}", text, flags=re.M))


def with_replaced_text(scripts: ScriptSet, old: str, new: str, *, only: str = "") -> ScriptSet:
    """The same scripts (or one of them) with another text in place of `old`."""
    return _changed(scripts, lambda text: text.replace(old, new), only=only)


def _changed(scripts: ScriptSet, change: Callable[[str], str], *, only: str = "") -> ScriptSet:
    changed: dict[str, Script] = {}
    for script in (scripts[name] for name in scripts.names):
        source = script.source if only not in ("", script.name) else change(script.source)
        digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        changed[script.name] = Script(script.name, source, digest)
    assert any(changed[name].sha1 != scripts[name].sha1 for name in changed), "no script has this text"
    return ScriptSet(changed)
