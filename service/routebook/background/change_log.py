"""One line in the log for each change of the table: what changed, its value before and after, the cause and the actor.
The worker that made a change also records it in the audit, so that each change has one record of all workers.

The value before is what this worker's table held when the change arrived; the value after comes from the history's
entry.

Refusals change nothing, so they are not in the history: `write_refusals` writes those of this worker into the store.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from routebook.errors import StoreError
from routebook.model.broker import QueueData
from routebook.model.change_text import describe_change
from routebook.model.names import Caller
from routebook.observability.audit import Audit
from routebook.replica.table import Table
from routebook.store.history import BASELINE_KINDS, Change, append_refusals
from routebook.store.namespace import Namespace

_log = logging.getLogger("routebook.changes")

MAX_TOPICS_NAMED: Final = 3
"""A registration may have thousands of topics: the line has their number and the first few."""

_NOT_LOGGED: Final = BASELINE_KINDS - {"baseline-begin", "baseline-end"}
"""Thousands of entries that repeat the table and change nothing."""


Describe = Callable[[Change, Table], str]


class ChangeLog:
    def __init__(self, masked: Callable[[str, str], str], audit: Audit, worker: str) -> None:
        self._masked = masked
        self._audit = audit
        self._worker = worker
        self._describe: Mapping[str, Describe] = {
            "broker-registered": _registration,
            "broker-changed": _registration,
            "broker-removed": _removal,
            "group-changed": _group,
            "queues-changed": _queues_of_broker,
            "write-permission": _permission,
            "kv-put": _key_value,
            "kv-deleted": _key_value,
            "settings-changed": self._setting,
            "identity-changed": _identity,
        }

    def log(self, changes: Sequence[Change], before: Table) -> None:
        is_logged = _log.isEnabledFor(logging.INFO)
        for change in changes:
            if change.kind in _NOT_LOGGED:
                continue
            if self._worker in (change.fields.get("worker"), change.fields.get("actor")):
                self._record(change)
            if not is_logged:
                continue
            describe = self._describe.get(change.kind, _other)
            fields = change.fields
            cause = f", {fields['cause']}" if "cause" in fields else ""
            origin = f" from {fields['source']}" if fields.get("source") else ""
            text = describe(change, before)
            _log.info("%d %s %s%s (by %s%s)", change.version, change.kind, text, cause, fields.get("actor"), origin)

    def _record(self, change: Change) -> None:
        fields = change.fields
        actor, source, worker, port = (str(fields.get(name, "")) for name in ("actor", "source", "worker", "port"))
        caller = Caller(actor, source, worker=worker, port=port, verb=str(fields.get("verb", change.kind)))
        what, before, after = describe_change(fields)
        self._audit.done(
            caller, what=f"{change.kind} {what}", before=before, after=after, cause=str(fields.get("cause", ""))
        )

    def _setting(self, change: Change, before: Table) -> str:
        key = change.fields["key"]
        value = before.settings.get(key)
        after = change.fields["value"]
        now = "file or default" if after is None else after
        return f"{key}: {'default' if value is None else self._masked(key, value)} → {now}"


def _seat(fields: Mapping[str, Any]) -> str:
    return f"{fields['cluster']}/{fields['broker']} id {fields['id']}"


def _registration(change: Change, before: Table) -> str:
    fields = change.fields
    group = before.groups.get(fields["broker"])
    holder = group.addresses.get(fields["id"], "empty") if group else "empty"
    seat = f"{_seat(fields)}: {holder} → {fields['addr']}" if holder != fields["addr"] else _seat(fields)
    flags = _flags(before, fields)
    queues = _queues(change, before)
    return "; ".join(part for part in (seat, flags, queues) if part)


def _flags(before: Table, fields: Mapping[str, Any]) -> str:
    group = before.groups.get(fields["broker"])
    was = (group.zone, group.acting_master) if group else (None, False)
    now = (fields["zone"], fields["acting"])
    return f"zone, acting master: {was[0]}, {was[1]} → {now[0]}, {now[1]}" if was != now else ""


def _removal(change: Change, before: Table) -> str:
    fields = change.fields
    text = f"{_seat(fields)}: {fields['addr']} → empty"
    if fields["group_removed"]:
        text += f"; the group and its {len(before.queues_of(fields['broker']))} topics are removed"
    return text


def _group(change: Change, before: Table) -> str:
    fields = change.fields
    if fields.get("group_removed"):
        return f"{fields['broker']}: the empty group is removed"
    return f"{fields['broker']}: {_flags(before, fields) or 'entries only'}"


def _queues_of_broker(change: Change, before: Table) -> str:
    return f"{change.fields['broker']}: {_queues(change, before)}"


def _queues(change: Change, before: Table) -> str:
    items = change.fields.get("queues", [])
    if not items:
        return ""
    known = before.queues_of(change.fields["broker"])
    shown = [f"{item['t']} {_packed(known.get(item['t']))} → {_item(item)}" for item in items[:MAX_TOPICS_NAMED]]
    more = f" and {len(items) - MAX_TOPICS_NAMED} more" if len(items) > MAX_TOPICS_NAMED else ""
    return f"{len(items)} topics (perm read write flags): {', '.join(shown)}{more}"


def _packed(queue: QueueData | None) -> str:
    return f"[{queue.pack()}]" if queue else "none"


def _item(item: Mapping[str, Any]) -> str:
    return "none" if "x" in item else f"[{item['p']} {item['r']} {item['w']} {item['f']}]"


def _permission(change: Change, before: Table) -> str:
    fields = change.fields
    topics = len(before.queues_of(fields["broker"]))
    return f"{fields['broker']}: {fields['rule']} on {fields['touched']} of {topics} topics"


def _key_value(change: Change, before: Table) -> str:
    """Without the value, which may be a secret."""
    fields = change.fields
    is_known = fields["key"] in before.kv.get(fields["namespace"], {})
    now = "deleted" if change.kind == "kv-deleted" else f"value with sha256 {fields['sha256'][:12]}…"
    return f"{fields['namespace']}/{fields['key']}: {'another value' if is_known else 'none'} → {now}"


def _identity(change: Change, _before: Table) -> str:
    role = change.fields.get("role")
    return f"{change.fields['name']}, role {role}" if role else str(change.fields["name"])


def _other(change: Change, _before: Table) -> str:
    return str(describe_change({**change.fields, "kind": change.kind}))


_log_of_refusals = logging.getLogger(__name__)

REFUSALS_PERIOD_S: Final = 1.0


async def write_refusals(namespace: Namespace, audit: Audit) -> None:
    """Without the store they are held, in a limited number, until it is back. A refusal whose reply was lost with the
    connection is written twice.
    """
    refusals = audit.take_refusals()
    if not refusals:
        return
    try:
        await append_refusals(namespace, refusals)
    except StoreError as error:
        audit.hold_refusals(refusals)
        _log_of_refusals.debug("%d records of refusals wait for the store: %s", len(refusals), error)


async def write_refusals_forever(namespace: Namespace, audit: Audit) -> None:
    while True:
        await asyncio.sleep(REFUSALS_PERIOD_S)
        await write_refusals(namespace, audit)
