"""11: what should somebody look at? One function a rule."""

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
    """The share is of the seats that were UP just before the first of the losses. Losses of overlapping minutes are one
    finding, with the largest share of any of them.
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
    """Seats whose last interval that began before this entry is UP."""
    earlier = ([one for one in of_seat if one.row["ord"] < ord_] for of_seat in seats.values())
    return sum(bool(begun) and begun[-1].state == UP for begun in earlier)


def headless(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    for group, seats in groups_of(all_intervals(before(history, window.end_ms))).items():
        for span in failovers.headless(seats, window, thresholds):
            if span[1] - span[0] > thresholds.headless_ms:
                downs = [one for one in seats[0] if one.state == DOWN and one.start <= span[0]]
                version = downs[-1].row["version"]
                yield _finding("headless", group, span, span[1] - span[0], thresholds.headless_ms, [version])


def two_masters(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    """Two that follow each other: from A to B and back."""
    found = failovers.failovers(history, window)
    for one, other in pairwise(found):
        between = other.row["ms"] - one.row["ms"]
        if one.group == other.group and one.from_address == other.row["addr"] and between <= thresholds.two_masters_ms:
            versions = [one.row["version"], other.row["version"]]
            span = (one.row["ms"], other.row["ms"])
            yield _finding("two-masters", one.group, span, between, thresholds.two_masters_ms, versions)


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
    """Of a cluster, in an hour of the clock, as far as it lies in the window."""
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
    """Hours of the clock that begin in the window; one without any change counts 0, before the first entry, too."""
    by_hour = _hourly_churn(before(history, window.end_ms))
    first, end = -(-window.start_ms // HOUR_MS), -(-window.end_ms // HOUR_MS)
    for cluster, hours in sorted(by_hour.items()):
        for hour, versions in sorted(hours.items()):
            if not first <= hour < end:
                continue
            x = len(versions)
            earlier = [len(hours.get(other, ())) for other in range(hour - thresholds.churn_hours_before, hour)]
            usual = median(earlier)
            spread = 1.4826 * median(abs(other - usual) for other in earlier)
            if spread:
                threshold = usual + thresholds.churn_spread * spread
                fires = (x - usual) / spread > thresholds.churn_spread
            else:
                threshold = thresholds.churn_times_median * max(usual, 1)
                fires = x > threshold
            if fires and x >= thresholds.churn_minimum:
                yield _finding("churn-spike", [cluster], _hour(hour), x, threshold, sorted(set(versions)))


def _hourly_churn(rows: Sequence[Row]) -> dict[str, dict[int, list[int]]]:
    """Cluster -> hour -> of each topic created or removed in it, the version with which it last came or went."""
    found: dict[str, dict[int, list[int]]] = {}
    moves = _moves(rows)
    there: set[tuple[str, str]] = set()
    hours = [row["ms"] // HOUR_MS for row in rows]
    table: Table = {}

    def close(hour: int, table: Table) -> None:
        now = {(item["cluster"], topic) for queues in table.values() for topic, item in queues.items()}
        for cluster, topic in there ^ now:
            found.setdefault(cluster, {}).setdefault(hour, []).append(moves[hour, cluster, topic])
        there.clear()
        there.update(now)

    for (row, table), hour_before in zip(played(rows), [*hours[:1], *hours], strict=False):
        if row["ms"] // HOUR_MS != hour_before:
            close(hour_before, table)
    if hours:
        close(hours[-1], table)
    return found


def _moves(rows: Sequence[Row]) -> dict[tuple[int, str, str], int]:
    """Hour, cluster, topic -> the version with which a queue of it last came or went."""
    found: dict[tuple[int, str, str], int] = {}
    were: dict[str, set[tuple[str, str]]] = {}
    for row, table in after_entries(rows):
        for broker in [row["broker"]] if row["broker"] is not None else [*were]:
            now = {(item["cluster"], topic) for topic, item in table.get(broker, {}).items()}
            for cluster, topic in were.get(broker, set()) ^ now:
                found[row["ms"] // HOUR_MS, cluster, topic] = row["version"]
            were[broker] = now
    return found


def skew(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    for row in capacity.by_cluster(history, capacity.midnights(window), thresholds):
        if row["groups"] >= thresholds.skew_groups and row["peak"] is not None and row["peak"] > thresholds.skew_peak:
            span = (row["at_ms"], row["at_ms"])
            yield _finding("skew", [row["cluster"]], span, row["peak"], thresholds.skew_peak, [])


def read_only(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    """As far as it lies in the window. `had`: at any time before. The proof is what took the last one away."""
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
    """Those that touch are one; its proof is that of the first."""
    found: list[tuple[int, int, Row]] = []
    for start, end, row in sorted(spans, key=lambda span: span[:2]):
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end, found[-1][2])
        else:
            found.append((start, end, row))
    return found


def _writable(rows: Sequence[Row]) -> dict[str, list[tuple[Row, bool]]]:
    """Broker's name -> the entries with which it got its first writable queue or lost its last."""
    found: dict[str, list[tuple[Row, bool]]] = {}
    for row, table in after_entries(rows):
        for broker in [row["broker"]] if row["broker"] is not None else [*table]:
            is_writable = any(item["perm"] & WRITE for item in table.get(broker, {}).values())
            noted = found.setdefault(broker, [])
            if is_writable != (bool(noted) and noted[-1][1]):
                noted.append((row, is_writable))
    return found


def _without(changes: Sequence[tuple[Row, bool]], window: Window) -> Iterator[tuple[int, int, Row]]:
    for (row, is_writable), then in zip(changes, [*changes[1:], None], strict=False):
        if not is_writable:
            yield row["ms"], window.end_ms if then is None else then[0]["ms"], row


def history_faults(history: HistoryRows, window: Window, thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    """Each hole and each fork; what is late and what is unreadable, summed up. `value`: how many versions."""
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
    summed = {
        "late": [row for row in entries if row["ord"] in late],
        "unreadable": [row for row in entries if row["code"] == Kind.UNREADABLE],
    }
    for what, those in summed.items():
        if those:
            span = (min(row["ms"] for row in those), max(row["ms"] for row in those))
            yield _finding("history", [what], span, len(those), 0, sorted({row["version"] for row in those}))
