"""7: which topics came, went, changed?"""

from collections.abc import Sequence
from typing import Any

from routebook_pipeline.history import DEFAULTS, Thresholds, Window
from tests.pipeline.oracle.history_rows import HistoryRows, Row, before, is_item, within
from tests.pipeline.oracle.routes import played, present_queues

_SIZE = ("read_queues", "write_queues", "perm")
_SIZE_BEFORE = ("read_queues", "write_queues", "perm_said")


def topics(rows: Sequence[Row]) -> dict[str, set[str]]:
    """Cluster -> topics with a queue that is there after these rows."""
    found: dict[str, set[str]] = {}
    for (topic, _), item in present_queues(rows).items():
        found.setdefault(item["cluster"], set()).add(topic)
    return found


def by_cluster(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    """At the window's start: before the entries of its first millisecond, which are in it. Windows side by side add up.

    A cluster that had no topic all the time has no row.
    """
    rows = before(history, window.end_ms)
    at_start, at_end = topics(before(history, window.start_ms)), topics(rows)
    put: dict[str, set[str]] = {}
    for row in rows:
        if within(row, window) and is_item(row) and not row["removed"]:
            put.setdefault(row["cluster"], set()).add(row["topic"])
    resized = _resized(rows, window)
    answer = []
    for cluster in sorted(at_start.keys() | at_end.keys() | put.keys()):
        old, new = at_start.get(cluster, set()), at_end.get(cluster, set())
        created, removed = len(new - old), len(old - new)
        passing = len(put.get(cluster, set()) - old - new)
        answer.append(
            {
                "cluster": cluster,
                "topics_before": len(old),
                "topics_after": len(new),
                "created": created,
                "removed": removed,
                "passing": passing,
                "resized": resized.get(cluster, 0),
                "rate": (created + removed + 2 * passing) / max(1, len(old)),
            }
        )
    return answer


def _resized(rows: Sequence[Row], window: Window) -> dict[str, int]:
    """An item is the first where the queue was not there before it: never, or removed, alone or with its group. It is
    compared with the item before, not with what an operator made of its permission.
    """
    found: dict[str, int] = {}
    for row, table in played(rows):
        if not is_item(row) or row["removed"] or not within(row, window):
            continue
        there = table.get(row["broker"], {}).get(row["topic"])
        if there and tuple(row[name] for name in _SIZE) != tuple(there[name] for name in _SIZE_BEFORE):
            found[row["cluster"]] = found.get(row["cluster"], 0) + 1
    return found
