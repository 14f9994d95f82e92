"""11 `anomalies`: one function per rule."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from routebook_pipeline.history import DEFAULTS, HOUR_MS, Thresholds, Window
from routebook_pipeline.kinds import Kind
from tests.pipeline.oracle import capacity, exposure, failovers, failures, heartbeat_gaps, integrity
from tests.pipeline.oracle.availability import groups_of
from tests.pipeline.oracle.history_rows import HistoryRows, Row, Seat, before, is_entry, within
from tests.pipeline.oracle.routes import WRITE, Table, after_entries, played
from tests.pipeline.oracle.states import DOWN, UP, Interval, all_intervals, counted

SEVERITY = {
    "flapping": "warning",
    "mass-loss": "critical",
    "headless": "critical",
    "two-masters": "critical",
    "slow-detection": "warning",
    "late-heartbeats": "warning",
    "churn-spike": "warning",
    "skew": "info",
    "read-only": "critical",
    "history": "critical",
}


def anomalies(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    rules = (
        flapping,
        mass_loss,
        headless,
        two_masters,
        slow_detection,
        late_heartbeats,
        churn_spike,
        skew,
        read_only,
        history_faults,
    )
    return [row for rule in rules for row in rule(history, window, thresholds)]


def _finding(
    rule: str,
    subject: Sequence[object],
    span: tuple[int, int],
    value: float,
    threshold: float,
    versions: Sequence[int],
) -> dict[str, Any]:
    return {
        "rule": rule,
        "severity": SEVERITY[rule],
        "subject": "/".join(str(part) for part in subject),
        "from_ms": span[0],
        "to_ms": span[1],
        "value": float(value),
        "threshold": float(threshold),
        "versions": sorted(versions),
    }


def flapping(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    for found in failures.episodes(history, window, thresholds):
        span = (found.downs[0].start, found.downs[-1].start)
        versions = [down.row["version"] for down in found.downs]
        yield _finding("flapping", found.seat, span, len(found.downs), thresholds.episode_minimum, versions)


def mass_loss(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    """The share is relative to the seats that were UP just before the first of the losses.

    Losses of overlapping minutes are one finding, with the largest share among them.
    """
    clusters: dict[str, dict[Seat, list[Interval]]] = {}
    for seat, of_seat in all_intervals(before(history, window.end_ms)).items():
        clusters.setdefault(seat[0], {})[seat] = of_seat
    for cluster, seats in sorted(clusters.items()):
        losses = sorted(_losses(seats, window), key=lambda loss: int(loss[1].row["ord"]))
        findings: list[tuple[list[Interval], float]] = []
        for _, last in losses:
            minute = [loss for loss in losses if last.start - thresholds.mass_loss_ms <= loss[1].start <= last.start]
            lost = {seat for seat, _ in minute}
            share = len(lost) / _number_up(seats, minute[0][1].row["ord"])
            if len(lost) < thresholds.mass_loss_minimum or share < thresholds.mass_loss_share:
                continue
            downs = [down for _, down in minute]
            if findings and findings[-1][0][-1].start >= downs[0].start:
                joined, largest = findings.pop()
                findings.append((joined + [down for down in downs if down not in joined], max(largest, share)))
            else:
                findings.append((downs, share))
        for downs, share in findings:
            span = (downs[0].start, downs[-1].start)
            versions = [down.row["version"] for down in downs]
            yield _finding("mass-loss", [cluster], span, share, thresholds.mass_loss_share, versions)


def _losses(seats: dict[Seat, list[Interval]], window: Window) -> list[tuple[Seat, Interval]]:
    return [
        (seat, down)
        for seat, of_seat in seats.items()
        for before_it, down in pairwise(of_seat)
        if down.is_unplanned and before_it.state == UP and window.start_ms <= down.start < window.end_ms
    ]


def _number_up(seats: dict[Seat, list[Interval]], ord_: int) -> int:
    """The number of seats that were UP just before this entry."""
    earlier = ([interval for interval in of_seat if interval.row["ord"] < ord_] for of_seat in seats.values())
    return sum(bool(intervals) and intervals[-1].state == UP for intervals in earlier)


def headless(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    for group, seats in groups_of(all_intervals(before(history, window.end_ms))).items():
        for span in failovers.headless(seats, window, thresholds):
            if span[1] - span[0] > thresholds.headless_ms:
                downs = [interval for interval in seats[0] if interval.state == DOWN and interval.start <= span[0]]
                version = downs[-1].row["version"]
                yield _finding("headless", group, span, span[1] - span[0], thresholds.headless_ms, [version])


def two_masters(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    """Two consecutive failovers: from A to B and back."""
    found = failovers.failovers(history, window)
    for there, back in pairwise(found):
        between = back.row["ms"] - there.row["ms"]
        if (
            there.group == back.group
            and there.from_address == back.row["addr"]
            and between <= thresholds.two_masters_ms
        ):
            versions = [there.row["version"], back.row["version"]]
            span = (there.row["ms"], back.row["ms"])
            yield _finding("two-masters", there.group, span, between, thresholds.two_masters_ms, versions)


def slow_detection(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    for loss in exposure.losses(history, window):
        row = loss.down.row
        if row["timeout_ms"] is None:
            continue
        threshold = row["timeout_ms"] + thresholds.slow_detection_ms
        if loss.detection_ms > threshold:
            span = (row["ms"] - loss.detection_ms, row["ms"])
            yield _finding("slow-detection", loss.seat, span, loss.detection_ms, threshold, [row["version"]])


def late_heartbeats(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    """Per cluster and hour of the clock, as far as the hour lies in the window."""
    hours: dict[tuple[int, str], list[Row]] = {}
    for pulse in history.pulses:
        if heartbeat_gaps.counts_in(pulse, window):
            hours.setdefault((pulse["to_ms"] // HOUR_MS, pulse["cluster"]), []).append(pulse)
    for (hour, cluster), pulses in sorted(hours.items()):
        found = heartbeat_gaps.summary(pulses, thresholds)
        if found["number"] >= thresholds.late_minimum and found["late_share"] > thresholds.late_share:
            yield _finding("late-heartbeats", [cluster], _hour(hour), found["late_share"], thresholds.late_share, [])


def _hour(hour: int) -> tuple[int, int]:
    return hour * HOUR_MS, (hour + 1) * HOUR_MS


def churn_spike(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    """Hours of the clock that begin in the window, compared with the hours since that of the first entry. An hour
    without a change counts 0.
    """
    rows = before(history, window.end_ms)
    by_hour = _hourly_churn(rows)
    first_hour = min((row["ms"] // HOUR_MS for row in rows), default=0)
    first, end = -(-window.start_ms // HOUR_MS), -(-window.end_ms // HOUR_MS)
    for cluster, hours in sorted(by_hour.items()):
        for hour, versions in sorted(hours.items()):
            if not first <= hour < end:
                continue
            number = len(versions)
            since = max(hour - thresholds.churn_hours_before, first_hour + 1)
            earlier = [len(hours.get(other, ())) for other in range(since, hour)]
            if len(earlier) < thresholds.churn_hours_minimum or not earlier:
                continue
            center = median(earlier)
            deviation = 1.4826 * median(abs(other - center) for other in earlier)
            if deviation:
                threshold = center + thresholds.churn_spread * deviation
                fires = (number - center) / deviation > thresholds.churn_spread
            else:
                threshold = thresholds.churn_times_median * max(center, 1)
                fires = number > threshold
            if fires and number >= thresholds.churn_minimum:
                yield _finding("churn-spike", [cluster], _hour(hour), number, threshold, sorted(set(versions)))


def _hourly_churn(rows: Sequence[Row]) -> dict[str, dict[int, list[int]]]:
    """Cluster -> hour -> for each topic created or removed in it, the version of its last creation or removal."""
    found: dict[str, dict[int, list[int]]] = {}
    last_changes = _last_changes(rows)
    present: set[tuple[str, str]] = set()
    hours = [row["ms"] // HOUR_MS for row in rows]
    table: Table = {}

    def close(hour: int, table: Table) -> None:
        now = {(item["cluster"], topic) for queues in table.values() for topic, item in queues.items()}
        for cluster, topic in present ^ now:
            found.setdefault(cluster, {}).setdefault(hour, []).append(last_changes[hour, cluster, topic])
        present.clear()
        present.update(now)

    for (row, table), hour_before in zip(played(rows), [*hours[:1], *hours], strict=False):
        if row["ms"] // HOUR_MS != hour_before:
            close(hour_before, table)
    if hours:
        close(hours[-1], table)
    return found


def _last_changes(rows: Sequence[Row]) -> dict[tuple[int, str, str], int]:
    """Hour, cluster, topic -> the version with which one of its queue entries was last created or removed."""
    found: dict[tuple[int, str, str], int] = {}
    before: dict[str, set[tuple[str, str]]] = {}
    for row, table in after_entries(rows):
        for broker in [row["broker"]] if row["broker"] is not None else [*before]:
            now = {(item["cluster"], topic) for topic, item in table.get(broker, {}).items()}
            for cluster, topic in before.get(broker, set()) ^ now:
                found[row["ms"] // HOUR_MS, cluster, topic] = row["version"]
            before[broker] = now
    return found


def skew(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    for row in capacity.by_cluster(history, capacity.midnights(window), thresholds):
        if row["groups"] >= thresholds.skew_groups and row["peak"] is not None and row["peak"] > thresholds.skew_peak:
            span = (row["at_ms"], row["at_ms"])
            yield _finding("skew", [row["cluster"]], span, row["peak"], thresholds.skew_peak, [])


def read_only(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    """The part inside the window counts. The group must have had a writable queue at any time before.

    The finding names the entry that removed the last one.
    """
    rows = before(history, window.end_ms)
    writable = _writable(rows)
    for seat, of_seat in sorted(all_intervals(rows).items()):
        spans: list[tuple[int, int, Row]] = []
        for start, end, row in _without(writable.get(seat[1], []), window):
            for master in of_seat:
                if seat[2] != 0 or master.state != UP:
                    continue
                from_ms, to_ms = counted(master, window, thresholds)
                if max(start, from_ms) < min(end, to_ms):
                    spans.append((max(start, from_ms), min(end, to_ms), row))
        for start, end, row in _joined(spans):
            if end - start > thresholds.read_only_ms:
                yield _finding(
                    "read-only", seat[:2], (start, end), end - start, thresholds.read_only_ms, [row["version"]]
                )


def _joined(spans: Sequence[tuple[int, int, Row]]) -> list[tuple[int, int, Row]]:
    """Joins spans that touch; a joined span keeps the entry of the first."""
    found: list[tuple[int, int, Row]] = []
    for start, end, row in sorted(spans, key=lambda span: span[:2]):
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end, found[-1][2])
        else:
            found.append((start, end, row))
    return found


def _writable(rows: Sequence[Row]) -> dict[str, list[tuple[Row, bool]]]:
    """Broker name -> the entries with which it got its first writable queue or lost its last one."""
    found: dict[str, list[tuple[Row, bool]]] = {}
    for row, table in after_entries(rows):
        for broker in [row["broker"]] if row["broker"] is not None else [*table]:
            is_writable = any(item["perm"] & WRITE for item in table.get(broker, {}).values())
            changes = found.setdefault(broker, [])
            if is_writable != (bool(changes) and changes[-1][1]):
                changes.append((row, is_writable))
    return found


def _without(changes: Sequence[tuple[Row, bool]], window: Window) -> Iterator[tuple[int, int, Row]]:
    for (row, is_writable), then in zip(changes, [*changes[1:], None], strict=False):
        if not is_writable:
            yield row["ms"], window.end_ms if then is None else then[0]["ms"], row


def history_faults(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    """Every hole and fork is a finding; all late entries are one finding, and all unreadable ones another.

    `value`: the number of versions.
    """
    rows = before(history, window.end_ms)
    entries = [row for row in rows if is_entry(row) and within(row, window)]
    late = {row["ord"] for row in integrity.late_entries(rows)}
    for row in entries:
        if row["code"] == Kind.HOLE:
            missing = row["to_version"] - row["from_version"] + 1
            versions = sorted({row["from_version"], row["to_version"]})
            yield _finding("history", ["hole"], (row["ms"], row["ms"]), missing, 0, versions)
        elif row["code"] == Kind.FORK:
            yield _finding("history", ["fork"], (row["ms"], row["ms"]), 1, 0, [row["version"]])
    joined = {
        "late": [row for row in entries if row["ord"] in late],
        "unreadable": [row for row in entries if row["code"] == Kind.UNREADABLE],
    }
    for what, found in joined.items():
        if found:
            span = (min(row["ms"] for row in found), max(row["ms"] for row in found))
            yield _finding("history", [what], span, len(found), 0, sorted({row["version"] for row in found}))
