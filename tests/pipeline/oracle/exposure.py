"""9 `exposure`: how long routes contained the address of a dead broker."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from routebook_pipeline.history import DEFAULTS, Thresholds, Window
from routebook_pipeline.kinds import Kind
from tests.pipeline.oracle.history_rows import HistoryRows, Seat, before, nearest_rank
from tests.pipeline.oracle.routes import WRITE, played
from tests.pipeline.oracle.states import Interval, all_intervals


@dataclass(frozen=True)
class Loss:
    seat: Seat
    down: Interval
    detection_ms: int
    queue_seconds: float


def losses(history: HistoryRows, window: Window) -> list[Loss]:
    """The unplanned DOWN intervals that start in the window and whose last sign of life is known.

    Queue seconds count the queues that could be written to.
    """
    rows = before(history, window.end_ms)
    write_queues = {
        row["ord"]: sum(item["write_queues"] for item in table.get(row["broker"], {}).values() if item["perm"] & WRITE)
        for row, table in played(rows)
        if row["code"] == Kind.BROKER_REMOVED
    }
    found = []
    for seat, of_seat in sorted(all_intervals(rows).items()):
        for down in of_seat:
            if not down.is_unplanned or not window.start_ms <= down.start < window.end_ms:
                continue
            row = down.row
            silent_since = row["last_heartbeat_ms"] if row["cause"] == "expired" else row["lost_ms"]
            if silent_since is None:
                continue
            detection = row["ms"] - silent_since
            queues = write_queues[row["ord"]] if seat[2] == 0 else 0
            found.append(Loss(seat, down, detection, detection / 1000 * queues))
    return found


def by_cluster(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    days: dict[tuple[str, str], list[Loss]] = {}
    for loss in losses(history, window):
        day = datetime.fromtimestamp(loss.down.start // 1000, UTC).strftime("%Y-%m-%d")
        days.setdefault((loss.seat[0], day), []).append(loss)
    answer = []
    for (cluster, day), of_day in sorted(days.items()):
        detections = sorted(loss.detection_ms for loss in of_day)
        number = len(detections)
        answer.append(
            {
                "cluster": cluster,
                "day": day,
                "number": number,
                "detection_ms": sum(detections),
                "p50_ms": detections[nearest_rank(number, 500) - 1],
                "p95_ms": detections[nearest_rank(number, 950) - 1],
                "max_ms": detections[-1],
                "client_mean_ms": sum(detections) / number + thresholds.poll_ms / 2,
                "client_worst_ms": detections[-1] + thresholds.poll_ms,
                "queue_seconds": sum(loss.queue_seconds for loss in of_day),
            }
        )
    return answer


def by_group(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[Loss]] = {}
    for loss in losses(history, window):
        groups.setdefault(loss.seat[:2], []).append(loss)
    return [
        {
            "cluster": cluster,
            "broker": broker,
            "number": len(of_group),
            "detection_ms": sum(loss.detection_ms for loss in of_group),
            "exposed_ms": _union([(loss.down.start - loss.detection_ms, loss.down.start) for loss in of_group]),
            "queue_seconds": sum(loss.queue_seconds for loss in of_group),
        }
        for (cluster, broker), of_group in sorted(groups.items())
    ]


def _union(spans: Sequence[tuple[int, int]]) -> int:
    total = 0
    reached: int | None = None
    for from_ms, end in sorted(spans):
        start = from_ms if reached is None else max(from_ms, reached)
        if end > start:
            total, reached = total + end - start, end
    return total
