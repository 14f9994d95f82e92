"""How each figure is defined, with the thresholds that were in force."""

from routebook_pipeline.report import formats
from routebook_pipeline.report.data import ReportData
from routebook_pipeline.report.markup import Section, tag


def definition_section(findings: ReportData) -> Section:
    entries = [one for term, said in terms(findings) for one in (tag("dt", term), tag("dd", said))]
    return Section(
        "definitions", "How each figure is defined", "With the thresholds of this report.", (tag("dl", *entries),)
    )


def terms(findings: ReportData) -> list[tuple[str, str]]:
    limits = findings.thresholds
    duration, share = formats.duration, formats.share
    return [
        (
            "This time",
            "From its start, inclusive, to its end, exclusive, in UTC. What is written at or after the end "
            "does not count, also for what began before it: the answer about a closed time never changes.",
        ),
        ("Complete until", "The lake holds everything that the service wrote before this moment."),
        (
            "Broker, group",
            "A broker is a seat: cluster, name and id. A group is all seats of one name; id 0 is the master.",
        ),
        (
            "Up, down",
            "A broker is up from its registration until it is removed. Expired or lost with its connection is "
            "unplanned; every other cause was meant. An absence that begins as one kind stays that kind.",
        ),
        (
            "Unknown",
            "Changes are missing: from there until the broker is next heard of nobody knows. Unknown time is "
            "left out of every ratio.",
        ),
        (
            "Availability",
            "Up divided by up and unplanned down. With planned: divided by all three. One absence counts "
            f"at most {duration(limits.retire_after_ms)}: a broker that was taken away does not hurt for ever.",
        ),
        ("Writable, readable", "A group is writable while its master is up, and readable while any of its brokers is."),
        (
            "Objective, budget",
            f"A cluster should be writable {formats.objective(limits.objective)} of the time, over all "
            "its groups. The budget is what may be missing; spent is the unplanned time of the masters.",
        ),
        (
            "Up between failures, until back",
            "Time up divided by unplanned failures; mean length of the unplanned "
            "absences that ended in this time. Those that did not are counted apart.",
        ),
        (
            "Flap, episode",
            f"A flap is an absence shorter than {duration(limits.flap_ms)}. An episode is "
            f"{limits.episode_minimum} or more of them, each at most {duration(limits.episode_gap_ms)} after the last.",
        ),
        (
            "Heartbeat gap",
            "Time between two heartbeats of a broker, kept in buckets 9 % wide; a figure is the upper "
            f"edge of its bucket. Late is what is surely longer than {limits.late_factor:g} times "
            f"{duration(limits.expected_period_ms)}.",
        ),
        (
            "Exposure",
            "From the last sign of life of a broker that failed to its removal: so long its address was handed "
            f"out. A client asks every {duration(limits.poll_ms)}, so it keeps it half of that longer in the mean and "
            "all of it at worst. Queue seconds: times the queues to write to. By group, overlaps count once.",
        ),
        (
            "Capacity, skew",
            "Queues with permission to write whose master is up, and queues with permission to read whose "
            "group is readable. Fullest / mean, variation (standard deviation / mean) and Gini compare the groups of a "
            "cluster; 1, 0 and 0 are perfectly even.",
        ),
        (
            "Churn",
            "Topics created, removed, and twice those that came and went, divided by the topics at the start. "
            "Resized: other queue numbers or permission than before.",
        ),
        (
            "Failover, headless",
            "A group's master registers from another address. Without a gap: the former one was "
            "still up. Headless: the master is away and another broker of the group is up.",
        ),
        (
            "Anomalies",
            f"Mass loss: {share(limits.mass_loss_share)} and at least {limits.mass_loss_minimum} brokers of a "
            f"cluster within {duration(limits.mass_loss_ms)}. Headless longer than {duration(limits.headless_ms)}. Two "
            f"masters: back and forth within {duration(limits.two_masters_ms)}. Slow detection: its timeout and "
            f"{duration(limits.slow_detection_ms)} more. Late heartbeats: above {share(limits.late_share)} in an hour. "
            f"Skew: fullest / mean above {limits.skew_peak:g} with at least {limits.skew_groups} groups. Read only: no "
            f"queue to write to for {duration(limits.read_only_ms)} while the master is up. Churn: an hour far above "
            f"the {limits.churn_hours_before} before it.",
        ),
    ]
