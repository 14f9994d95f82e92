"""Helpers for the tests of the Lua scripts: reading the history and single fields, and changing their limits."""

import hashlib
import json
import re
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


def with_lua_limit(scripts: ScriptSet, name: str, value: int) -> ScriptSet:
    """The same scripts, with another value of a constant that limits the size of a batch."""
    changed: dict[str, Script] = {}
    for script in (scripts[name] for name in scripts.names):
        source = re.sub(rf"^local {name} = \d+$", f"local {name} = {value}", script.source, flags=re.MULTILINE)
        digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        changed[script.name] = Script(script.name, source, digest)
    assert any(changed[script].sha1 != scripts[script].sha1 for script in changed), f"no script has {name}"
    return ScriptSet(changed)
