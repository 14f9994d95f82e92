"""6 `heartbeat-gaps`: how regularly heartbeats arrived."""

from collections.abc import Callable, Sequence
from typing import Any

from routebook_pipeline.history import DEFAULTS, Thresholds, Window
from tests.pipeline.oracle.history_rows import HistoryRows, Row, nearest_rank, ratio

LAST_BUCKET = 127


def upper_edge(bucket: int) -> float:
    return float(100 * 2 ** (bucket / 8))


def counts_in(pulse: Row, window: Window) -> bool:
    return bool(window.start_ms <= pulse["to_ms"] < window.end_ms)


def is_late(bucket: int, thresholds: Thresholds) -> bool:
    """Every gap in the bucket is late: the bucket's lower edge is, and all its gaps are longer than that."""
    return bucket > 0 and upper_edge(bucket - 1) >= thresholds.late_factor * thresholds.expected_period_ms


def summary(pulses: Sequence[Row], thresholds: Thresholds) -> dict[str, Any]:
    by_bucket: dict[int, int] = {}
    for pulse in pulses:
        by_bucket[pulse["bucket"]] = by_bucket.get(pulse["bucket"], 0) + pulse["count"]
    number = sum(by_bucket.values())
    longest = max(pulse["max_ms"] for pulse in pulses)

    def percentile(per_mille: int) -> float:
        reached = 0
        for bucket in sorted(by_bucket):
            reached += by_bucket[bucket]
            if reached >= nearest_rank(number, per_mille):
                # The last bucket holds everything above the one before, so it has no upper edge.
                return float(longest) if bucket == LAST_BUCKET else min(upper_edge(bucket), float(longest))
        raise AssertionError("the rank is higher than the number of gaps")

    late = sum(count for bucket, count in by_bucket.items() if is_late(bucket, thresholds))
    return {
        "number": number,
        "max_ms": longest,
        "p50_ms": percentile(500),
        "p90_ms": percentile(900),
        "p99_ms": percentile(990),
        "p999_ms": percentile(999),
        "late": late,
        "late_share": ratio(late, number),
    }


def _grouped(
    history: HistoryRows, window: Window, thresholds: Thresholds, key: Callable[[Row], tuple[Any, Any, Any]]
) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, Any, Any], list[Row]] = {}
    for pulse in history.pulses:
        if counts_in(pulse, window):
            groups.setdefault(key(pulse), []).append(pulse)
    return [
        {"cluster": cluster, "broker": broker, "broker_id": broker_id, **summary(pulses, thresholds)}
        for (cluster, broker, broker_id), pulses in groups.items()
    ]


def by_seat(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    return _grouped(history, window, thresholds, lambda row: (row["cluster"], row["broker"], row["broker_id"]))


def by_cluster(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    return _grouped(history, window, thresholds, lambda row: (row["cluster"], None, None))
