"""7 `churn`: topics that were created, removed and resized."""

from collections.abc import Sequence
from typing import Any

from routebook_pipeline.history import DEFAULTS, Thresholds, Window
from tests.pipeline.oracle.history_rows import HistoryRows, Row, before, is_item, within
from tests.pipeline.oracle.routes import played, present_queues

_SIZE = ("read_queues", "write_queues", "perm")
_SIZE_BEFORE = ("read_queues", "write_queues", "perm_said")


def topics(rows: Sequence[Row]) -> dict[str, set[str]]:
    """Cluster -> topics that have a queue entry after these rows."""
    found: dict[str, set[str]] = {}
    for (topic, _), item in present_queues(rows).items():
        found.setdefault(item["cluster"], set()).add(topic)
    return found


def by_cluster(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    """The start of the window is before the entries of its first millisecond, so adjacent windows add up.

    A cluster without any topic during the window has no row.
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
    """An item is a resize if it differs from the item before it, without later changes of its permission.

    It is not a resize if the queue entry did not exist before it: it was new, or had been removed by itself or with its
    group.
    """
    found: dict[str, int] = {}
    for row, table in played(rows):
        if not is_item(row) or row["removed"] or not within(row, window):
            continue
        present = table.get(row["broker"], {}).get(row["topic"])
        if present and tuple(row[name] for name in _SIZE) != tuple(present[name] for name in _SIZE_BEFORE):
            found[row["cluster"]] = found.get(row["cluster"], 0) + 1
    return found
