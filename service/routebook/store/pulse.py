"""append_pulse: heartbeat gaps, summed up."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from routebook.store.namespace import Namespace
from routebook.store.packing import compact_json

ROWS_BYTES: Final = 200_000
"""What one entry takes; more rows are more entries. No reader expects more than 256 KiB."""


@dataclass(frozen=True, slots=True)
class GapRow:
    """The gaps of one seat. `buckets`: number of the bucket -> how many."""

    cluster: str
    broker: str
    broker_id: int
    max_ms: int
    buckets: Mapping[int, int]

    def pack(self) -> str:
        pairs = ",".join(f"[{bucket},{count}]" for bucket, count in sorted(self.buckets.items()))
        count = sum(self.buckets.values())
        names = f'"c":{json.dumps(self.cluster, ensure_ascii=False)},"b":{json.dumps(self.broker, ensure_ascii=False)}'
        return f'{{{names},"i":{self.broker_id},"n":{count},"max":{self.max_ms},"h":[{pairs}]}}'


async def append_pulse(namespace: Namespace, worker: str, rows: Sequence[str], *, span_ms: int, max_bytes: int) -> int:
    """One entry of packed rows that fit into one; its version in the stream."""
    joined = "[" + ",".join(rows) + "]"
    reply = await namespace.run("append_pulse", compact_json(worker), span_ms, joined, max_bytes)
    return int(reply[1])
