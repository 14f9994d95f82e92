"""Every value is used by a template, and every value that a template uses is declared in values.yaml."""

from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest

from tests.chart.chart_values import ChartValue, chart_values
from tests.chart.rendering import VALUE_SETS, default_values, merged, template, value_set
from tests.chart.used_values import used_paths

ALL = chart_values()
LEAVES = [found for found in ALL if not found.is_group]

_SET = {path.stem: value_set(path) for path in VALUE_SETS}


def combined(*names: str) -> dict[str, Any]:
    return reduce(merged, (_SET[name] for name in names), {})


# A change of any value must change the rendering in at least one of these contexts.
CONTEXTS: list[dict[str, Any]] = [
    combined("pipeline-claims", "metrics", "tls", "load-balancer"),
    combined("autoscaling", "service-monitor", "node-port"),
    {"pipeline": {"enabled": True}, "service": {"type": "NodePort"}, "drain": {"terminationGracePeriodSeconds": 0}},
    {"store": {"builtin": {"enabled": False}}},
]

# The changed value to try, for values that accept only certain texts.
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
    for path, file in used_paths().items():
        stem = next((path[:length] for length in range(len(path), 0, -1) if path[:length] in declared), None)
        # A mapping that is passed on unchanged may contain any key.
        if stem is None or (stem != path and declared[stem].is_group):
            unknown.append(f"{file}: {'.'.join(path)}")
    assert unknown == []


def test_most_values_are_found_in_the_templates() -> None:
    """Guards the test above: it would pass if the template reader found nothing."""
    assert len(used_paths()) >= 0.8 * len(LEAVES)


@pytest.mark.slow
@pytest.mark.parametrize("found", LEAVES, ids=lambda found: found.name)
def test_a_changed_value_changes_the_rendering(found: ChartValue) -> None:
    assert any(changes_rendering(found, context) for context in CONTEXTS), f"nothing uses {found.name}"


def changes_rendering(found: ChartValue, context: dict[str, Any]) -> bool:
    given = merged(default_values(), context)
    for key in found.path:
        given = given[key]
    for other in other_values(found, given):
        if other == given:
            continue
        changed = template(merged(context, nested(found.path, other)))
        before = template(context)
        # A changed refusal counts as well.
        if (changed.code, changed.text) != (before.code, before.text):
            assert changed.code == 0 or "values don't meet" not in changed.errors, changed.errors
            return True
    return False


def other_values(found: ChartValue, given: Any) -> Iterator[Any]:
    if found.name in CHANGED:
        yield CHANGED[found.name]
    elif "enum" in found.constraints:
        yield from found.constraints["enum"]
    else:
        yield other_value(found, given)


def other_value(found: ChartValue, given: Any) -> Any:
    match given:
        case bool():
            return not given
        case int():
            return given + 1
        case str():
            return "changed"
        case list():
            items = found.constraints.get("items", {}).get("type")
            return ["changed"] if items == "string" else [{"name": "changed", "key": "changed"}]
        case dict():
            return {"changed": "yes"}
    raise TypeError(found.name)


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    return reduce(lambda inner, key: {key: inner}, reversed(path), value)
