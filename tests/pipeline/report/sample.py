"""A sample report about a made-up fleet: random downtimes, and every figure computed from them in plain Python.

    python -m tests.pipeline.report.sample report.html

writes the page that docs/pipeline.md shows.
"""

import math
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from routebook_pipeline.history import DAY_MS, DEFAULTS, HOUR_MS, MINUTE_MS, SECOND_MS, Window
from routebook_pipeline.report.data import PLANNED, UNPLANNED, UP, Band, ReportData, Row, worst_seats
from routebook_pipeline.report.page import render
from routebook_pipeline.transforms.anomalies import SEVERITIES
from tests.pipeline.report.downtimes import FIRST_VERSION, START_MS, Downtime, Downtimes, Seat, make_downtimes

CLUSTERS = {"payments": 8, "orders-eu": 12, "orders-us": 10, "telemetry": 16}


def fleet(
    *, seed: int = 7, days: int = 14, clusters: Mapping[str, int] = CLUSTERS, namespace: str = "production"
) -> ReportData:
    rng = random.Random(seed)
    window = Window(START_MS, START_MS + days * DAY_MS)
    downtimes = make_downtimes(rng, window, clusters)
    seats = [_seat_row(seat, downs, window) for seat, downs in downtimes.items()]
    by_cluster = [_cluster_row(cluster, seats) for cluster in clusters]
    drawn = worst_seats(seats)
    return ReportData(
        namespace=namespace,
        window=window,
        integrity=[_integrity(downtimes, window)],
        complete_until_ms=window.end_ms + 40 * SECOND_MS,
        availability_by_cluster=by_cluster,
        availability_by_group=[_group_row(row, downtimes) for row in seats if row["broker_id"] == 0],
        availability_by_seat=seats,
        bands=[band for row in drawn for band in _bands(row, downtimes, window)],
        failures_by_cluster=[_failures(downtimes, window, cluster) for cluster in clusters],
        failures_by_seat=[_failures({seat: downs}, window, *seat) for seat, downs in downtimes.items()],
        flaps=_flaps(downtimes),
        heartbeat_gaps_by_cluster=[_gaps(rng, days * 5760 * groups, cluster) for cluster, groups in clusters.items()],
        heartbeat_gaps_by_seat=[_gaps(rng, days * 2880, *seat) for seat in downtimes],
        gap_buckets=_gap_buckets(rng, days * 5760 * sum(clusters.values())),
        exposure_by_cluster=_exposure(downtimes),
        exposure_by_group=_exposed_groups(downtimes),
        capacity=(capacity := _capacity(rng, downtimes, clusters, days)),
        churn=[_churn(rng, cluster, groups) for cluster, groups in clusters.items()],
        failovers=(failovers := _failovers(rng, downtimes)),
        failovers_by_group=_failovers_by_group(failovers),
        anomalies=_anomalies(downtimes, capacity),
        made_ms=window.end_ms + 3 * HOUR_MS,
    )


def _inside(one: Downtime, window: Window) -> int:
    return max(0, min(one.end_ms, window.end_ms) - one.start_ms)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _seat_row(seat: Seat, downs: list[Downtime], window: Window) -> dict[str, Any]:
    unplanned = sum(_inside(one, window) for one in downs if not one.is_planned)
    planned = sum(_inside(one, window) for one in downs if one.is_planned)
    up = window.length_ms - unplanned - planned
    return {
        "cluster": seat[0],
        "broker": seat[1],
        "broker_id": seat[2],
        "since_ms": window.start_ms,
        "up_ms": up,
        "unplanned_ms": unplanned,
        "planned_ms": planned,
        "unknown_ms": 0,
        "availability": _ratio(up, up + unplanned),
        "availability_all": _ratio(up, up + unplanned + planned),
    }


def _group_row(master: dict[str, Any], downtimes: Downtimes) -> dict[str, Any]:
    cluster, broker = master["cluster"], master["broker"]
    masters, slaves = downtimes[cluster, broker, 0], downtimes[cluster, broker, 1]
    both = sum(max(0, min(a.end_ms, b.end_ms) - max(a.start_ms, b.start_ms)) for a in masters for b in slaves)
    whole = master["up_ms"] + master["unplanned_ms"] + master["planned_ms"]
    kept = {key: value for key, value in master.items() if key not in {"broker_id", "since_ms"}}
    readable = {"readable_ms": whole - both, "unreadable_ms": both, "readable_unknown_ms": 0}
    return kept | readable | {"readable": _ratio(whole - both, whole)}


def _cluster_row(cluster: str, seats: list[dict[str, Any]]) -> dict[str, Any]:
    masters = [row for row in seats if row["cluster"] == cluster and row["broker_id"] == 0]
    up, unplanned, planned = (sum(row[key] for row in masters) for key in ("up_ms", "unplanned_ms", "planned_ms"))
    worst = min(masters, key=lambda row: (row["availability"], row["broker"]))
    return {
        "cluster": cluster,
        "groups": len(masters),
        "up_ms": up,
        "unplanned_ms": unplanned,
        "planned_ms": planned,
        "unknown_ms": 0,
        "availability": _ratio(up, up + unplanned),
        "availability_all": _ratio(up, up + unplanned + planned),
        "worst_group": worst["broker"],
        "worst_availability": worst["availability"],
        "objective": DEFAULTS.objective,
        "budget_ms": round((1 - DEFAULTS.objective) * (up + unplanned)),
        "spent_ms": unplanned,
        "met": up / (up + unplanned) >= DEFAULTS.objective,
        "paused_ms": 0,
    }


def _bands(row: Row, downtimes: Downtimes, window: Window) -> list[Band]:
    seat = (row["cluster"], row["broker"], row["broker_id"])
    made, at = [], window.start_ms
    for one in downtimes[seat]:
        end = min(one.end_ms, window.end_ms)
        made.append(Band(*seat, UP, at, one.start_ms))
        made.append(Band(*seat, PLANNED if one.is_planned else UNPLANNED, one.start_ms, end))
        at = end
    return [*made, Band(*seat, UP, at, window.end_ms)]


def _failures(
    downtimes: Downtimes, window: Window, cluster: str, broker: str | None = None, broker_id: int | None = None
) -> dict[str, Any]:
    downs = [one for seat, some in downtimes.items() if seat[0] == cluster for one in some]
    unplanned = [one for one in downs if not one.is_planned]
    ended = [one.length_ms for one in unplanned if one.end_ms < window.end_ms]
    up = window.length_ms * sum(1 for seat in downtimes if seat[0] == cluster) - sum(
        _inside(one, window) for one in downs
    )
    return {
        "cluster": cluster,
        "broker": broker,
        "broker_id": broker_id,
        "unplanned": len(unplanned),
        "planned": len(downs) - len(unplanned),
        "unfinished": len(unplanned) - len(ended),
        "causes": dict(Counter(one.cause for one in downs)),
        "up_ms": up,
        "mtbf_ms": _ratio(up, len(unplanned)),
        "mttr_ms": _ratio(sum(ended), len(ended)),
    }


def _flaps(downtimes: Downtimes) -> list[dict[str, Any]]:
    rows = []
    for (cluster, broker, broker_id), downs in downtimes.items():
        flaps = sum(1 for one in downs if one.length_ms < DEFAULTS.flap_ms)
        runs: list[list[Downtime]] = []
        for one in downs:
            if runs and one.start_ms - runs[-1][-1].start_ms <= DEFAULTS.episode_gap_ms:
                runs[-1].append(one)
            else:
                runs.append([one])
        episodes = [
            {"first_ms": run[0].start_ms, "last_ms": run[-1].start_ms, "number": len(run)}
            for run in runs
            if len(run) >= DEFAULTS.episode_minimum
        ]
        if flaps or episodes:
            rows.append(
                {"cluster": cluster, "broker": broker, "broker_id": broker_id, "flaps": flaps, "episodes": episodes}
            )
    return rows


def _gaps(
    rng: random.Random, number: int, cluster: str, broker: str | None = None, broker_id: int | None = None
) -> dict[str, Any]:
    late = int(number * rng.random() ** 4 * 0.004)
    edges = [100 * 2 ** (bucket / 8) for bucket in (66, 66, 67 + (late > 40), 68 + 2 * (late > 40))]
    longest = 30_100 + rng.randint(0, 400) + (rng.randint(15_000, 80_000) if late else 0)
    percentiles = [min(edge, longest) for edge in edges]
    named = dict(zip(("p50_ms", "p90_ms", "p99_ms", "p999_ms"), percentiles, strict=True))
    row = {"cluster": cluster, "broker": broker, "broker_id": broker_id, "number": number, "max_ms": longest}
    return row | named | {"late": late, "late_share": _ratio(late, number)}


def _gap_buckets(rng: random.Random, number: int) -> dict[int, int]:
    buckets = Counter({66: int(number * 0.78), 65: int(number * 0.13), 67: int(number * 0.06), 64: int(number * 0.02)})
    for bucket in range(52, 80):
        buckets[bucket] += int(number * 0.012 / (1 + abs(bucket - 66)) ** 1.7 * rng.uniform(0.6, 1.4))
    return dict(buckets)


def _exposure(downtimes: Downtimes) -> list[dict[str, Any]]:
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for seat, downs in downtimes.items():
        for one in downs:
            if not one.is_planned:
                found[seat[0], one.start_ms // DAY_MS].append(one.detection_ms)
    rows = []
    for (cluster, day), detections in sorted(found.items()):
        ordered, number = sorted(detections), len(detections)
        rows.append(
            {
                "cluster": cluster,
                "day": datetime.fromtimestamp(day * DAY_MS / SECOND_MS, UTC).strftime("%Y-%m-%d"),
                "number": number,
                "detection_ms": sum(ordered),
                "p50_ms": ordered[math.ceil(0.5 * number) - 1],
                "p95_ms": ordered[math.ceil(0.95 * number) - 1],
                "max_ms": ordered[-1],
                "client_mean_ms": sum(ordered) / number + DEFAULTS.poll_ms / 2,
                "client_worst_ms": ordered[-1] + DEFAULTS.poll_ms,
                "queue_seconds": sum(ordered) / 1000 * 64,
            }
        )
    return rows


def _exposed_groups(downtimes: Downtimes) -> list[dict[str, Any]]:
    rows = []
    for cluster, broker in sorted({seat[:2] for seat in downtimes}):
        downs = [one for seat in (0, 1) for one in downtimes[cluster, broker, seat] if not one.is_planned]
        detected = sum(one.detection_ms for one in downs)
        figures = {"number": len(downs), "detection_ms": detected, "exposed_ms": detected}
        rows.append({"cluster": cluster, "broker": broker, **figures, "queue_seconds": detected / 1000 * 64})
    return [row for row in rows if row["number"]]


def _capacity(rng: random.Random, downtimes: Downtimes, clusters: Mapping[str, int], days: int) -> list[dict[str, Any]]:
    rows = []
    for cluster, groups in clusters.items():
        queues = [rng.randint(40, 90) for _ in range(groups)]
        if cluster == "telemetry":
            queues[0] *= 4
        for day in range(days):
            at = START_MS + day * DAY_MS
            queues = [max(8, one + rng.choice((0, 0, 0, 4, 8, -4))) for one in queues]
            up = [
                0
                if any(one.start_ms <= at < one.end_ms for one in downtimes[cluster, f"broker-{n + 1:02d}", 0])
                else one
                for n, one in enumerate(queues)
            ]
            rows.append(_capacity_row(cluster, at, up))
    return rows


def _capacity_row(cluster: str, at: int, queues: list[int]) -> dict[str, Any]:
    number, whole = len(queues), sum(queues)
    mean = whole / number
    deviation = math.sqrt(sum((one - mean) ** 2 for one in queues) / number)
    gini = 2 * sum(i * one for i, one in enumerate(sorted(queues), start=1)) / (number * whole) - (number + 1) / number
    return {
        "cluster": cluster,
        "at_ms": at,
        "write_capacity": whole,
        "read_capacity": whole,
        "groups": number,
        "mean": mean,
        "peak": max(queues) / mean,
        "cv": deviation / mean,
        "gini": gini,
        "top_topic": f"{cluster}-events",
        "top_share": 0.14,
    }


def _churn(rng: random.Random, cluster: str, groups: int) -> dict[str, Any]:
    before, created, removed, passing = groups * 14, rng.randint(2, 30), rng.randint(0, 18), rng.randint(0, 5)
    return {
        "cluster": cluster,
        "topics_before": before,
        "topics_after": before + created - removed,
        "created": created,
        "removed": removed,
        "passing": passing,
        "resized": rng.randint(0, 12),
        "rate": (created + removed + 2 * passing) / before,
    }


def _failovers(rng: random.Random, downtimes: Downtimes) -> list[dict[str, Any]]:
    rows = []
    for (cluster, broker, broker_id), downs in downtimes.items():
        for one in downs if broker_id == 0 else ():
            if rng.random() < 0.4:
                host = rng.randint(10, 250)
                rows.append(
                    {
                        "cluster": cluster,
                        "broker": broker,
                        "version": one.version + 1,
                        "ms": one.end_ms,
                        "from_address": f"10.20.{host}.7:10911",
                        "to_address": f"10.20.{host}.8:10911",
                        "gap_ms": one.length_ms,
                        "planned": False,
                    }
                )
    return rows


def _failovers_by_group(failovers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    gaps: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in failovers:
        gaps[row["cluster"], row["broker"]].append(row["gap_ms"])
    return [
        {
            "cluster": cluster,
            "broker": broker,
            "failovers": len(each),
            "planned": 0,
            "gap_ms": sum(each),
            "longest_gap_ms": max(each),
            "headless_ms": sum(each),
        }
        for (cluster, broker), each in sorted(gaps.items())
    ]


def _anomalies(downtimes: Downtimes, capacity: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    lost = [
        one
        for seat, downs in downtimes.items()
        for one in downs
        if seat[0] == "telemetry" and one.is_expired_with_the_rack
    ]
    if lost:
        first, last = min(one.start_ms for one in lost), max(one.start_ms for one in lost)
        versions = [lost[0].version + n for n in range(len(lost))]
        rows.append(_anomaly("mass-loss", "telemetry", first, last, len(lost) / 32, 0.2, versions))
    for (cluster, broker, broker_id), downs in downtimes.items():
        for one in downs:
            if broker_id == 0 and one.length_ms > 5 * MINUTE_MS and not one.is_planned:
                group = f"{cluster}/{broker}"
                rows.append(_anomaly("headless", group, one.start_ms, one.end_ms, one.length_ms, 60_000, [one.version]))
    for row in _flaps(downtimes):
        for episode in row["episodes"]:
            subject = f"{row['cluster']}/{row['broker']}/{row['broker_id']}"
            times = (episode["first_ms"], episode["last_ms"])
            versions = [one.version + n for n, one in enumerate(downtimes[_seat(row)]) if _is_of(one, episode)]
            rows.append(_anomaly("flapping", subject, *times, episode["number"], 3, versions))
    uneven = [row for row in capacity if row["peak"] > DEFAULTS.skew_peak]
    rows += [_anomaly("skew", row["cluster"], row["at_ms"], None, row["peak"], 2.0, []) for row in uneven[:2]]
    return rows


def _seat(row: dict[str, Any]) -> Seat:
    return row["cluster"], row["broker"], row["broker_id"]


def _is_of(one: Downtime, episode: dict[str, int]) -> bool:
    return episode["first_ms"] <= one.start_ms <= episode["last_ms"]


def _anomaly(rule: str, subject: str, *figures: Any) -> dict[str, Any]:
    names = ("from_ms", "to_ms", "value", "threshold", "versions")
    return {"rule": rule, "severity": SEVERITIES[rule], "subject": subject, **dict(zip(names, figures, strict=True))}


def _integrity(downtimes: Downtimes, window: Window) -> dict[str, Any]:
    entries = window.length_ms // DAY_MS * 88
    return {
        "era": 0,
        "first_version": FIRST_VERSION,
        "last_version": FIRST_VERSION + entries - 1,
        "entries": entries,
        "holes": [],
        "missing": 0,
        "forks": 0,
        "late": 0,
        "duplicates": 0,
        "unreadable": {},
        "baselines": window.length_ms // DAY_MS,
        "complete_until_ms": window.end_ms + 40 * SECOND_MS,
        "ok": True,
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(fleet()), encoding="utf-8")
