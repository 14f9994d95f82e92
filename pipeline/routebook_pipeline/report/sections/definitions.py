"""The section "How each figure is defined", with the thresholds of the report."""

from routebook_pipeline.report import formats
from routebook_pipeline.report.data import ReportData
from routebook_pipeline.report.markup import Section, tag


def definition_section(data: ReportData) -> Section:
    entries = [part for term, text in definitions(data) for part in (tag("dt", term), tag("dd", text))]
    return Section(
        "definitions", "How each figure is defined", "With the thresholds of this report.", (tag("dl", *entries),)
    )


def definitions(data: ReportData) -> list[tuple[str, str]]:
    limits = data.thresholds
    duration, share = formats.duration, formats.share
    return [
        (
            "Period",
            "From its start (inclusive) to its end (exclusive), in UTC. Changes at or after the end do not count, "
            "even if they end something that began before. So the figures of a past period never change.",
        ),
        ("Complete until", "The lake holds everything that the service wrote before this moment."),
        (
            "Broker, group",
            "A broker is a seat: cluster, broker name and broker id. A group is all seats of one broker name; id 0 "
            "is the master.",
        ),
        (
            "Up, down",
            "A broker is up from its registration until it is removed. A removal because it expired or lost its "
            "connection is unplanned; all other causes are planned. A downtime keeps the kind with which it began.",
        ),
        (
            "Unknown",
            "Changes are missing. From there on the state of a broker is unknown until its next registration or "
            "removal. Unknown time is left out of every ratio.",
        ),
        (
            "Availability",
            "Time up, divided by time up and unplanned time down. With planned: divided by all three. One downtime "
            f"counts for at most {duration(limits.retire_after_ms)}, so that a retired broker stops lowering the "
            "availability.",
        ),
        ("Writable, readable", "A group is writable while its master is up, and readable while any of its brokers is."),
        (
            "Objective, budget",
            f"A cluster should be writable {formats.objective(limits.objective)} of the time, over all its groups. "
            "The budget is the unplanned time down that this allows; spent is the masters' unplanned time down.",
        ),
        (
            "MTBF, MTTR",
            "Mean time between failures: time up divided by the number of unplanned failures. Mean time to repair: "
            "mean length of the unplanned downtimes that ended in the period. Those that did not end are counted "
            "separately.",
        ),
        (
            "Flap, episode",
            f"A flap is a downtime shorter than {duration(limits.flap_ms)}. An episode is a series of "
            f"{limits.episode_minimum} or more downtimes, each beginning at most {duration(limits.episode_gap_ms)} "
            "after the one before.",
        ),
        (
            "Heartbeat gap",
            "Time between two heartbeats of a broker, counted in buckets that are 9 % wide. A figure is the upper "
            f"edge of its bucket. A gap is late if it is certainly longer than {limits.late_factor:g} times "
            f"{duration(limits.expected_period_ms)}.",
        ),
        (
            "Exposure",
            "The time from the last sign of life of a failed broker to its removal. During this time, routes contain "
            f"a dead address. A client looks up its routes every {duration(limits.poll_ms)}, so it uses the address "
            "for half of that longer on average, and for all of it in the worst case. Queue seconds: exposure of a "
            "master times its writable queues. By group, overlaps count once.",
        ),
        (
            "Capacity, skew",
            "Writable: queues with write permission whose master is up. Readable: queues with read permission whose "
            "group is readable. Peak / mean, variation (standard deviation / mean) and Gini compare the groups of a "
            "cluster; for an even distribution they are 1, 0 and 0.",
        ),
        (
            "Churn",
            "Short-lived topics were created and removed within the period. Rate: topics created, removed, and twice "
            "the short-lived ones, divided by the topics at the start. Resized: number of queues or permission "
            "changed.",
        ),
        (
            "Failover, headless",
            "Failover: a group's master registers from another address. Without a gap: the former master was still "
            "up. Headless: the master is down and another broker of the group is up.",
        ),
        (
            "Anomalies",
            f"Mass loss: {share(limits.mass_loss_share)} and at least {limits.mass_loss_minimum} brokers of a "
            f"cluster go down within {duration(limits.mass_loss_ms)}. Headless: for longer than "
            f"{duration(limits.headless_ms)}. Two masters: the master changes back and forth within "
            f"{duration(limits.two_masters_ms)}. Slow detection: longer than the broker's timeout and "
            f"{duration(limits.slow_detection_ms)}. Late heartbeats: more than {share(limits.late_share)} in an "
            f"hour. Skew: peak / mean above {limits.skew_peak:g} with at least {limits.skew_groups} groups. "
            f"Read-only: no writable queue for {duration(limits.read_only_ms)} while the master is up. Churn spike: "
            f"an hour far above the {limits.churn_hours_before} hours before it.",
        ),
    ]
