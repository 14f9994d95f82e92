"""want_baseline, begin_baseline, append_baseline, end_baseline: the whole table, written into the history."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal

from routebook.model.caller import Caller
from routebook.store.namespace import Namespace
from routebook.store.packing import pack_caller
from routebook.store.reads import list_broker_names
from routebook.store.statuses import Status, status_of, text

Cause = Literal["daily", "new-history", "trimmed", "operator"]


class FencedError(Exception):
    """Another one leads by now."""


async def want_baseline(namespace: Namespace, why: Cause) -> int:
    """Since when (ms) one is wanted."""
    return int((await namespace.run("want_baseline", why))[2])


async def begin_baseline(namespace: Namespace, lease: str, *, caller: Caller, cause: Cause) -> tuple[int, str]:
    """Version of its first entry, and the wish that it fulfils."""
    reply = await namespace.run("begin_baseline", pack_caller(caller), lease, cause)
    _check_leads(status_of(reply))
    return int(reply[1]), text(reply[2])


async def append_baseline(
    namespace: Namespace, lease: str, broker: str, place: str, *, caller: Caller
) -> tuple[int, str]:
    """How many entries one part of a group took, and where the next begins; empty after the last."""
    reply = await namespace.run("append_baseline", pack_caller(caller), lease, broker, place)
    _check_leads(status_of(reply))
    return int(reply[2]), text(reply[3])


async def end_baseline(
    namespace: Namespace, lease: str, begin: int, entries: int, wish: str, *, caller: Caller
) -> None:
    reply = await namespace.run("end_baseline", pack_caller(caller), lease, begin, entries, wish)
    _check_leads(status_of(reply))


async def write_baseline(namespace: Namespace, lease: str, *, caller: Caller, cause: Cause) -> AsyncGenerator[int]:
    """All of one, a step a part; yields the number of entries so far. FencedError ends it."""
    begin, wish = await begin_baseline(namespace, lease, caller=caller, cause=cause)
    entries = 0
    yield entries
    for broker in sorted({name for _, names in await list_broker_names(namespace) for name in names}):
        place, is_told = "", False
        while not is_told:
            appended, place = await append_baseline(namespace, lease, broker, place, caller=caller)
            entries += appended
            is_told = not place
            yield entries
    await end_baseline(namespace, lease, begin, entries, wish, caller=caller)


def _check_leads(status: Status) -> None:
    if status is Status.FENCED:
        raise FencedError


@dataclass(frozen=True, slots=True)
class BaselineState:
    """What the store says of baselines. `of_history`: the one that the last belongs to; empty when there was none."""

    wanted: Cause | None
    last_ms: int
    last_begin: int
    """Version of its first entry."""
    of_history: str
    now_ms: int


async def read_baseline_state(namespace: Namespace) -> BaselineState:
    fields, now = await namespace.client.pipeline(
        [
            ("HMGET", namespace.keys.meta, "baseline_wanted", "baseline_ms", "baseline_begin", "baseline_history"),
            ("TIME",),
        ]
    )
    wish = text(fields[0])
    return BaselineState(
        wanted=_cause_of(wish.partition(" ")[2]) if wish else None,
        last_ms=int(fields[1] or 0),
        last_begin=int(fields[2] or 0),
        of_history=text(fields[3]),
        now_ms=int(now[0]) * 1000 + int(now[1]) // 1000,
    )


def _cause_of(why: str) -> Cause:
    return "trimmed" if why == "trimmed" else "operator"
