"""The plan follows from the seed."""

from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import pytest

from routebook.errors import InvalidInputError
from routebook.simulate.plan import PAUSE_S, Churn, Layout, Step, groups_of, plan, system_topics, topics_of
from routebook.simulate.simulation import Options

LAYOUT = Layout(brokers=12, slaves=1, clusters=3, topics=30)
EVERYTHING = Churn(
    crash_every_s=3,
    deploy_every_s=3,
    switch_every_s=3,
    silence_every_s=20,
    permission_every_s=5,
    flap_every_s=10,
    topics_every_s=1,
    timeout_ms=11_000,
    duration_s=600,
)


def steps(seed: int, churn: Churn = EVERYTHING, layout: Layout = LAYOUT) -> list[Step]:
    groups = groups_of(layout)
    return list(islice(plan(groups, topics_of(layout, groups, seed), churn, seed, layout.prefix), 2_000))


def test_the_same_seed_gives_the_same_plan() -> None:
    assert steps(1) == steps(1)
    assert steps(1) != steps(2)


def test_every_kind_of_trouble_happens() -> None:
    kinds = {step.kind for step in steps(1)}
    assert kinds == {
        *("crash", "deploy", "switch", "silence", "permission", "flap"),
        *("topic-created", "topic-resized", "topic-deleted"),
    }


@pytest.mark.parametrize("seed", range(5))
def test_a_group_is_in_one_trouble_at_a_time_and_all_end_in_time(seed: int) -> None:
    free_from = dict.fromkeys((group.name for group in groups_of(LAYOUT)), 0.0)
    for step in steps(seed):
        assert step.end_s + PAUSE_S <= EVERYTHING.duration_s
        if step.kind == "topic-deleted":
            continue
        for name in step.groups:
            assert free_from[name] <= step.at_s
            free_from[name] = step.end_s + PAUSE_S


def test_only_existing_topics_are_changed() -> None:
    existing = set(topics_of(LAYOUT, groups_of(LAYOUT), 3))
    for step in steps(3):
        if step.kind == "topic-created":
            assert step.topic not in existing
            existing.add(step.topic)
        elif step.topic:
            assert step.topic in existing
        if step.kind == "topic-deleted":
            existing.remove(step.topic)
    assert len(existing) > LAYOUT.topics / 2


def test_the_silence_of_a_broker_is_longer_than_its_timeout() -> None:
    silences = [step for step in steps(1) if step.kind == "silence"]
    assert silences
    assert min(step.lasts_s for step in silences) > EVERYTHING.timeout_ms / 1000 + 5


def test_without_intervals_nothing_happens_and_without_slaves_no_switch() -> None:
    assert steps(1, Churn(duration_s=600)) == []
    assert steps(1, Churn(switch_every_s=1, duration_s=600), replace(LAYOUT, slaves=0)) == []


def test_without_a_duration_the_plan_has_no_end() -> None:
    assert len(steps(1, replace(EVERYTHING, duration_s=0))) == 2_000


def test_every_broker_has_its_own_host() -> None:
    hosts = [host for group in groups_of(LAYOUT) for host in group.hosts]
    assert len(set(hosts)) == 24
    assert hosts[0] == "127.64.0.1"


def test_a_full_registration_never_has_one_topic() -> None:
    assert len(system_topics("c", "b")) == 12


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"first_address": "localhost:10911"}, "first address"),
        ({"first_address": "127.64.0.1"}, "first address"),
        ({"first_address": "127.64.0.1:65534"}, "first address"),
        ({"first_address": "255.255.255.250:10911"}, "first address"),
        ({"clusters": 13}, "clusters"),
        ({"prefix": ""}, "prefix"),
    ],
)
def test_an_impossible_layout_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        Layout(**{**asdict(LAYOUT), **changes})
    assert refused.value.field == field


def test_a_timeout_below_the_period_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="brokers register every 10000 ms"):
        Options(["127.0.0.1:9876"], period_s=1, timeout_ms=9_000)
