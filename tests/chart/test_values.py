"""Every value is used, and every value that a template uses is declared."""

from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest

from tests.chart.declared import Declared, declared_values
from tests.chart.paths import used_paths
from tests.chart.rendering import VALUE_SETS, default_values, merged, template, value_set

ALL = declared_values()
LEAVES = [found for found in ALL if not found.is_group]

_SET = {path.stem: value_set(path) for path in VALUE_SETS}


def together(*names: str) -> dict[str, Any]:
    return reduce(merged, (_SET[name] for name in names), {})


# In one of these worlds a change of any value must show.
WORLDS: list[dict[str, Any]] = [
    together("pipeline-claims", "metrics", "tls", "load-balancer"),
    together("autoscaling", "service-monitor", "node-port"),
    {"pipeline": {"enabled": True}, "service": {"type": "NodePort"}, "drain": {"terminationGracePeriodSeconds": 0}},
    {"store": {"builtin": {"enabled": False}}},
]

# What a value is changed to, where any other text would be refused.
CHANGED: dict[str, Any] = {
    "image.digest": f"sha256:{'0' * 64}",
    "settings": {"hold_percent": 77},
    "store.external.url": "redis://elsewhere:6379",
    "store.builtin.maxMemory": "99mb",
    "fullnameOverride": "changed",
    "admin.host": "::",
    "autoscaling.targetCPU": "333m",
    "autoscaling.minReplicas": 4,
    "pdb.minAvailable": "20%",
    "pdb.maxUnavailable": "20%",
    "metrics.podMonitor.interval": "77s",
    "metrics.serviceMonitor.interval": "77s",
    "metrics.prometheusRule.runbookUrl": "https://changed.example/runbook.md",
    "drain.terminationGracePeriodSeconds": 999,
}


def test_every_value_that_a_template_uses_is_declared() -> None:
    declared = {found.path: found for found in ALL}
    unknown = []
    for way, where in used_paths().items():
        stem = next((way[:length] for length in range(len(way), 0, -1) if way[:length] in declared), None)
        # Below a mapping that is passed on as it is anything may stand.
        if stem is None or (stem != way and declared[stem].is_group):
            unknown.append(f"{where}: {'.'.join(way)}")
    assert unknown == []


def test_enough_of_the_templates_is_understood_for_that() -> None:
    """Most values are named outright in some template; the reader of templates must not go blind."""
    assert len(used_paths()) >= 0.8 * len(LEAVES)


@pytest.mark.slow
@pytest.mark.parametrize("found", LEAVES, ids=lambda found: found.name)
def test_a_change_of_the_value_shows(found: Declared) -> None:
    assert any(shows(found, world) for world in WORLDS), f"nothing uses {found.name}"


def shows(found: Declared, world: dict[str, Any]) -> bool:
    given = merged(default_values(), world)
    for key in found.path:
        given = given[key]
    for other in others(found, given):
        if other == given:
            continue
        changed = template(merged(world, nested(found.path, other)))
        before = template(world)
        # Refused where it was taken, or taken where it was refused, shows too.
        if (changed.code, changed.text) != (before.code, before.text):
            assert changed.code == 0 or "values don't meet" not in changed.errors, changed.errors
            return True
    return False


def others(found: Declared, given: Any) -> Iterator[Any]:
    if found.name in CHANGED:
        yield CHANGED[found.name]
    elif "enum" in found.extra:
        yield from found.extra["enum"]
    else:
        yield other_of(found, given)


def other_of(found: Declared, given: Any) -> Any:
    match given:
        case bool():
            return not given
        case int():
            return given + 1
        case str():
            return "changed"
        case list():
            items = found.extra.get("items", {}).get("type")
            return ["changed"] if items == "string" else [{"name": "changed", "key": "changed"}]
        case dict():
            return {"changed": "yes"}
    raise TypeError(found.name)


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    return reduce(lambda inner, key: {key: inner}, reversed(path), value)
