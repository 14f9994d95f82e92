"""The invariants I1 to I9 over a recording, one function each (`docs/reliability.md`).

Each function yields, for everything that it compared, None or a sentence that describes the violation. The number of
comparisons is part of the result: an invariant that had nothing to compare is not proven. `prove` also requires that at
least 80 % of the planned requests were sent and answered, because a run without traffic violates nothing.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.faults.recording import Exchange, Recording, Span, Status, lifetimes

Findings = Iterator[str | None]

VISIBLE_WITHIN_S: Final = 1.0
"""A change is visible on all workers within this time."""
REPAIRED_WITHIN_S: Final = 35.0
TRAFFIC_SHARE: Final = 0.8
MEMORY_SLACK_BYTES: Final = 32 << 20
OPEN_FILES_SLACK: Final = 16
SHOWN: Final = 5


@dataclass(frozen=True)
class Result:
    invariant: str
    compared: int
    violations: list[str] = field(default_factory=list)


def i1_a_broker_that_sends_heartbeats_is_never_removed(recording: Recording) -> Findings:
    """Once an answer of a worker contained a broker, all later answers of that worker about the same topic contain it,
    as long as the broker sends heartbeats.
    """
    alive = {broker: lifetimes(recording, broker) for broker in recording.brokers}
    for (worker, topic), lookups in _by_worker_and_topic(recording).items():
        seen: dict[str, tuple[float, Span]] = {}
        for lookup in lookups:
            if not (lookup.done or lookup.absent):
                continue
            for broker, (since, span) in seen.items():
                if lookup.sent > since and span.covers(lookup.sent, lookup.ended):
                    missing = broker not in lookup.brokers
                    yield f"{worker} answered {topic} without {broker} at {lookup.sent:.3f}" if missing else None
            for broker in lookup.brokers:
                for span in alive.get(broker, []):
                    if span.covers(lookup.sent, lookup.ended) and seen.get(broker, (0, None))[1] != span:
                        seen[broker] = (lookup.ended, span)


def i2_a_dead_broker_is_removed_within_its_bound(recording: Recording) -> Findings:
    """Deaths whose bound lies after the end of the recording are not compared."""
    end = max((status.answered for status in recording.statuses), default=0.0)
    for death in recording.deaths:
        due = death.at + death.bound_s
        returned = min(
            (
                one.sent
                for one in recording.of_kind("registration")
                if one.subject == death.broker and one.sent > death.at
            ),
            default=float("inf"),
        )
        later = [
            one for one in recording.lookups if (one.done or one.absent) and one.sent > due and one.ended < returned
        ]
        if not later and due < min(returned, end):
            yield f"no lookup shows whether {death.broker} was removed {death.bound_s:g} s after its death"
        for lookup in later:
            yield (
                f"{lookup.worker} still answered {lookup.subject} with {death.broker} {lookup.sent - death.at:.3f} s "
                f"after its death; the bound is {death.bound_s:g} s"
                if death.broker in lookup.brokers
                else None
            )


def i3_a_registration_is_never_half_visible(recording: Recording) -> Findings:
    """All topics of a registration become visible in one step. So after an answer about one topic showed a generation,
    an answer of the same worker about another topic of that broker shows no older one.
    """
    yield from _never_falls(recording, across_topics=True)


def i4_all_workers_reach_the_same_digest(recording: Recording) -> Findings:
    """Not the same version: a baseline, which changes nothing in the table, may be written at any time."""
    if recording.last_change is None:
        return
    due = recording.last_change + VISIBLE_WITHIN_S
    states: dict[tuple[str, str], str] = {}
    reported = set()
    for status in recording.statuses:
        if status.sent > due:
            reported.add(status.worker)
            states.setdefault((status.history, status.digest), status.worker)
    for worker in recording.workers_at_end:
        yield None if worker in reported else f"{worker} reported no digest after the last change"
    first = next(iter(states), None)
    for state, worker in states.items():
        yield None if state == first else f"{worker} has {state}, {states[first] if first else ''} has {first}"


def i5_in_doubt_no_answer_says_that_there_is_no_such_topic(recording: Recording) -> Findings:
    """A topic is known to a worker as soon as it answered it with a broker that sent heartbeats ever since: one that
    was dead meanwhile has to reach this worker again. It is known to all workers a second after the registration was
    acknowledged, unless a failover lost that registration or the worker was cut off from the store.
    """
    alive = {broker: lifetimes(recording, broker) for broker in recording.brokers}
    acknowledged: dict[str, list[Exchange]] = defaultdict(list)
    for one in recording.of_kind("registration"):
        if one.done:
            for topic in one.topics:
                acknowledged[topic].append(one)
    lost_until = _last_change_of_the_history(recording)
    for (worker, topic), lookups in _by_worker_and_topic(recording).items():
        seen_at: dict[str, float] = {}
        for lookup in lookups:
            if lookup.absent:
                known = [
                    broker
                    for broker, at in seen_at.items()
                    if at < lookup.sent and _is_within(alive.get(broker, []), lookup, since=at)
                ] + [
                    one.subject
                    for one in acknowledged[topic]
                    if lost_until < one.sent
                    and not _is_cut_off(recording, lookup)
                    and one.ended + VISIBLE_WITHIN_S < lookup.sent
                    and _is_within(alive.get(one.subject, []), lookup, since=one.ended)
                ]
                if known:
                    yield f"{worker} answered that there is no {topic} at {lookup.sent:.3f}; it has {known[0]}"
            elif seen_at and lookup.code is not None:
                yield None
            for broker in lookup.brokers:
                seen_at[broker] = lookup.ended


def i6_no_connection_sees_an_older_version_after_a_newer_one(recording: Recording) -> Findings:
    """Versions are in HTTP answers. On the remoting port the generations of each broker show the order."""
    newest: dict[tuple[int, str], int] = {}
    for lookup in recording.lookups:
        if lookup.version is not None and lookup.history is not None:
            key = (lookup.connection, lookup.history)
            before = newest.get(key, 0)
            newest[key] = max(before, lookup.version)
            yield (
                f"connection {lookup.connection} saw version {lookup.version} after {before}"
                if lookup.version < before
                else None
            )
    yield from _never_falls(recording, across_topics=False)


def i7_no_write_of_a_fenced_leader_is_accepted(recording: Recording) -> Findings:
    """Tokens only rise, and each has one holder. No worker removed an expired broker between two observations of the
    lease of another worker with one and the same token.
    """
    leases = sorted(recording.leases, key=lambda lease: lease.ms)
    holders: dict[int, str] = {}
    newest = 0
    for lease in leases:
        holder = holders.setdefault(lease.token, lease.worker)
        if holder != lease.worker:
            yield f"token {lease.token} belonged to {holder} and to {lease.worker}"
        elif lease.token < newest:
            yield f"token {lease.token} was used after {newest}"
        else:
            yield None
        newest = max(newest, lease.token)
    times = [lease.ms for lease in leases]
    for removal in recording.removals:
        after = bisect_left(times, removal.ms)
        if removal.cause != "expired" or not 0 < after < len(leases):
            continue
        before, following = leases[after - 1], leases[after]
        fenced = before.token == following.token and before.worker != removal.actor
        yield (
            f"{removal.actor} removed {removal.broker} at {removal.ms} while {before.worker} held token {before.token}"
            if fenced
            else None
        )


def i8_memory_queues_and_files_return(recording: Recording) -> Findings:
    before = {one.process: one for one in recording.resources if one.when == "before"}
    for after in recording.resources:
        calm = before.get(after.process)
        if after.when == "before" or calm is None:
            continue
        if after.memory_bytes > calm.memory_bytes + MEMORY_SLACK_BYTES:
            grown = (after.memory_bytes - calm.memory_bytes) >> 20
            yield f"{after.process} uses {grown} MiB more than before the fault"
        elif after.open_files > calm.open_files + OPEN_FILES_SLACK:
            yield f"{after.process} has {after.open_files} open files; before the fault it had {calm.open_files}"
        elif after.waiting > calm.waiting:
            yield f"{after.process} still has {after.waiting} waiting requests"
        else:
            yield None


def i9_an_acknowledged_registration_survives_or_is_repaired(recording: Recording) -> Findings:
    """A second after the acknowledgement, all answers contain this generation or a newer one. If the history changed in
    between, the next registration repairs a loss, within 35 s, and the workers count it. Answers of workers that were
    cut off are not compared.
    """
    alive = {broker: lifetimes(recording, broker) for broker in recording.brokers}
    newest: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
    for one in recording.of_kind("registration"):
        if one.done and one.incarnation:
            for topic in one.topics:
                newest[one.subject, topic].append(one)
    lost_until = _last_change_of_the_history(recording)
    by_topic: dict[str, list[Exchange]] = defaultdict(list)
    for lookup in recording.lookups:
        if lookup.done:
            by_topic[lookup.subject].append(lookup)
    for (broker, topic), acknowledged in newest.items():
        times = [one.ended + VISIBLE_WITHIN_S for one in acknowledged]
        for lookup in by_topic[topic]:
            number = bisect_left(times, lookup.sent) - 1
            if number < 0:
                continue
            registration = acknowledged[number]
            assert registration.incarnation
            if not _is_within(alive[broker], lookup, since=registration.ended) or _is_cut_off(recording, lookup):
                continue
            found = lookup.brokers.get(broker)
            if found and found.generation >= registration.incarnation.generation:
                yield None
            elif registration.sent > lost_until:
                yield f"{lookup.worker} lacks generation {registration.incarnation.generation} of {broker} in {topic}"
            elif lookup.sent > registration.ended + REPAIRED_WITHIN_S:
                yield f"the loss of {broker} in {topic} was not repaired within {REPAIRED_WITHIN_S:g} s"
            elif not recording.gaps_counted:
                yield f"the loss of {broker} in {topic} is not counted in the metrics"


INVARIANTS: Final[Mapping[str, Callable[[Recording], Findings]]] = {
    function.__name__.partition("_")[0].upper(): function
    for function in (
        i1_a_broker_that_sends_heartbeats_is_never_removed,
        i2_a_dead_broker_is_removed_within_its_bound,
        i3_a_registration_is_never_half_visible,
        i4_all_workers_reach_the_same_digest,
        i5_in_doubt_no_answer_says_that_there_is_no_such_topic,
        i6_no_connection_sees_an_older_version_after_a_newer_one,
        i7_no_write_of_a_fenced_leader_is_accepted,
        i8_memory_queues_and_files_return,
        i9_an_acknowledged_registration_survives_or_is_repaired,
    )
}


def check(recording: Recording) -> dict[str, Result]:
    results = {}
    for name, function in INVARIANTS.items():
        findings = list(function(recording))
        results[name] = Result(name, len(findings), [finding for finding in findings if finding])
    return results


def missing_traffic(recording: Recording) -> list[str]:
    """Kinds of requests of which less than 80 % of the plan was answered. A request that failed and was repeated
    successfully counts as answered.
    """
    if not recording.planned:
        return ["no traffic was planned"]
    answered: dict[str, int] = defaultdict(int)
    for one in recording.exchanges:
        answered[one.kind] += one.code is not None
    return [
        f"{answered[kind]} of {planned} planned requests of the kind {kind} were answered"
        for kind, planned in recording.planned.items()
        if answered[kind] < TRAFFIC_SHARE * planned
    ]


def prove(recording: Recording, *, required: Collection[str] = ("I1", "I3", "I5", "I6", "I9")) -> dict[str, Result]:
    """Fails with the first violations of each invariant, with missing traffic, and if a required invariant had nothing
    to compare.
    """
    results = check(recording)
    problems = [f"{one.invariant}: {text}" for one in results.values() for text in one.violations[:SHOWN]]
    problems += missing_traffic(recording)
    problems += [f"{name} compared nothing" for name in required if not results[name].compared]
    assert not problems, f"seed {recording.seed}:\n" + "\n".join(problems)
    return results


def _by_worker_and_topic(recording: Recording) -> dict[tuple[str, str], list[Exchange]]:
    found: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
    for lookup in recording.lookups:
        found[lookup.worker, lookup.subject].append(lookup)
    for lookups in found.values():
        lookups.sort(key=lambda one: one.sent)
    return found


def _is_within(spans: list[Span], lookup: Exchange, *, since: float | None = None) -> bool:
    """Whether the broker sent heartbeats during the whole lookup (and from `since` on)."""
    return any(span.covers(lookup.sent if since is None else since, lookup.ended) for span in spans)


def _is_cut_off(recording: Recording, lookup: Exchange) -> bool:
    """Whether its worker could not follow the history at that time, or began to catch up less than a second before."""
    return any(
        one.worker == lookup.worker and one.begin <= lookup.ended and lookup.sent <= one.end + VISIBLE_WITHIN_S
        for one in recording.cut_off
    )


def _last_change_of_the_history(recording: Recording) -> float:
    """When a worker first reported a history that it did not report before. A registration that was sent earlier may be
    lost.
    """
    last: dict[str, Status] = {}
    changed = float("-inf")
    for status in recording.statuses:
        before = last.get(status.worker)
        if before and before.history != status.history:
            changed = max(changed, status.answered)
        last[status.worker] = status
    return changed


def _never_falls(recording: Recording, *, across_topics: bool) -> Findings:
    """Compares the generation of each broker in the lookups of one connection with those before, about the same topic
    or about another one. Lookups on both sides of a change of the history are not compared.
    """
    histories = _Histories(recording)
    newest: dict[tuple[int, str], dict[str, tuple[int, Exchange]]] = defaultdict(dict)
    for lookup in recording.lookups:
        for broker, (_, generation) in lookup.brokers.items():
            per_topic = newest[lookup.connection, broker]
            for topic, (before, earlier) in per_topic.items():
                if (topic != lookup.subject) is not across_topics or earlier.ended > lookup.sent:
                    continue
                falls = generation < before and not histories.may_change(lookup.worker, earlier.sent, lookup.ended)
                yield (
                    f"{lookup.worker} answered {lookup.subject} with generation {generation} of {broker} after {before}"
                    f" in an answer about {topic}"
                    if falls
                    else None
                )
            if generation >= per_topic.get(lookup.subject, (0, lookup))[0]:
                per_topic[lookup.subject] = (generation, lookup)


class _Histories:
    """Tells whether a worker's history may have changed between two moments, from the statuses around them."""

    def __init__(self, recording: Recording) -> None:
        self._statuses: dict[str, list[Status]] = defaultdict(list)
        for status in recording.statuses:
            self._statuses[status.worker].append(status)
        self._times = {worker: [one.answered for one in found] for worker, found in self._statuses.items()}

    def may_change(self, worker: str, begin: float, end: float) -> bool:
        statuses = self._statuses.get(worker, [])
        if not statuses:
            return False
        times = self._times[worker]
        first = max(bisect_left(times, begin) - 1, 0)
        last = next((n for n in range(bisect_left(times, end), len(statuses)) if statuses[n].sent >= end), None)
        return len({one.history for one in statuses[first : None if last is None else last + 1]}) > 1
