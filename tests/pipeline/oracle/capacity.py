"""8 `capacity`: how many queues can be written to and read from, and how evenly they are spread."""

from collections.abc import Sequence
from typing import Any

from routebook_pipeline.history import DAY_MS, DEFAULTS, Instant, Thresholds, Window
from tests.pipeline.oracle.history_rows import HistoryRows, Row, ratio, until
from tests.pipeline.oracle.routes import READ, WRITE, describe_groups, routes_of, up_addresses
from tests.pipeline.oracle.states import evidence


def midnights(window: Window) -> list[int]:
    return list(range(-(-window.start_ms // DAY_MS) * DAY_MS, window.end_ms, DAY_MS))


def by_cluster(
    history: HistoryRows, instants: Sequence[int], thresholds: Thresholds = DEFAULTS
) -> list[dict[str, Any]]:
    return [row for at_ms in instants for row in _at(until(history, Instant(ms=at_ms)), at_ms)]


def _at(rows: Sequence[Row], at_ms: int) -> list[dict[str, Any]]:
    """A cluster without queues and addresses has no row. A group's load is its part of the write capacity."""
    queues = routes_of(rows)
    _, owners = describe_groups(rows)
    groups = {(owners[broker], broker): up for broker, up in up_addresses(evidence(rows)).items() if up}
    answer = []
    for cluster in sorted({row["cluster"] for row in queues} | {group[0] for group in groups}):
        loads = {group: 0 for group in groups if group[0] == cluster}
        topics: dict[str, int] = {}
        read = 0
        for row in queues:
            group = (row["cluster"], row["broker"])
            if group not in loads:
                continue
            if row["perm"] & WRITE and 0 in groups[group]:
                loads[group] += row["write_queues"]
                topics[row["topic"]] = topics.get(row["topic"], 0) + row["write_queues"]
            if row["perm"] & READ:
                read += row["read_queues"]
        answer.append(
            {
                "cluster": cluster,
                "at_ms": at_ms,
                "write_capacity": sum(loads.values()),
                "read_capacity": read,
                "groups": len(loads),
                **_spread(sorted(loads.values())),
                **_top(topics),
            }
        )
    return answer


def _spread(loads: Sequence[int]) -> dict[str, float | None]:
    n, total = len(loads), sum(loads)
    if not total:
        return dict.fromkeys(("mean", "peak", "cv", "gini"))
    mean = total / n
    return {
        "mean": mean,
        "peak": max(loads) / mean,
        "cv": (sum((load - mean) ** 2 for load in loads) / n) ** 0.5 / mean,
        "gini": 2 * sum(i * load for i, load in enumerate(loads, 1)) / (n * total) - (n + 1) / n,
    }


def _top(topics: dict[str, int]) -> dict[str, Any]:
    total = sum(topics.values())
    if not total:
        return {"top_topic": None, "top_share": None}
    most, name = min((-share, name) for name, share in topics.items())
    return {"top_topic": name, "top_share": ratio(-most, total)}
