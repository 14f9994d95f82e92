"""The refusals: a capped stream beside the history, so that a flood of refusals cannot push changes out of it.

Workers aggregate equal refusals before they write them (`observability/audit.py`). The store gives each entry its id.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from routebook.observability.audit import Refusal
from routebook.store.namespace import Namespace
from routebook.store.packing import compact_json

MAX_KEPT: Final = 10_000
"""Entries, each of at most some 1.5 KB. The oldest are removed, one node of the stream at a time."""


async def append_refusals(namespace: Namespace, refusals: Sequence[Refusal]) -> None:
    key = namespace.keys.refusals
    await namespace.client.pipeline(
        [("XADD", key, "MAXLEN", "~", MAX_KEPT, "*", "d", compact_json(_fields(one))) for one in refusals]
    )


def _fields(refusal: Refusal) -> dict[str, Any]:
    caller = refusal.caller
    return {
        "v": 1,
        "kind": refusal.outcome,
        "actor": caller.actor,
        "source": caller.source,
        "worker": caller.worker,
        "port": caller.port,
        "verb": caller.verb,
        "object": refusal.what,
        "reason": refusal.reason,
        "count": refusal.count,
        "first_ms": refusal.first_ms,
    }


def parse_refusal(payload: bytes) -> dict[str, Any]:
    """Empty for an entry that something else has written."""
    try:
        fields = json.loads(payload)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) and fields.get("kind") in ("refused", "failed") else {}
