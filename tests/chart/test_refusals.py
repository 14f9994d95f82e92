"""The chart refuses values that cannot work together before it changes anything, and names the value to set."""

import re
from pathlib import Path
from typing import Any

import pytest

from routebook.settings import catalogue
from tests.chart.objects import main_container, settings_of, single, worker_template
from tests.chart.rendering import CHART, VALUE_SETS, default_values, merged, refusal, render, value_set
from tests.chart.tools import HELMS

EXTERNAL: dict[str, Any] = {"store": {"builtin": {"enabled": False}, "external": {"url": "redis://store:6379"}}}

REQUIREMENTS = (CHART / "templates" / "requirements.yaml").read_text()
MOVED_SETTINGS = dict(re.findall(r'^  "(\w+)" "([^"]+)"$', REQUIREMENTS, re.MULTILINE))
"""Settings that the chart sets through another value, and that value."""

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"settings": {"drain_ms": 1000}}, "Set drain.seconds."),
    ({"settings": {"bind_address": "127.0.0.1"}}, 'Leave it out, or set it to 0.0.0.0 or "::".'),
    (
        {"podLabels": {"app.kubernetes.io/name": "names"}},
        "podLabels contains app.kubernetes.io/name, which the chart sets itself. Leave it out;",
    ),
    (
        {"store": {"external": {"url": "redis://store:6379"}}},
        "Set store.builtin.enabled=false to use the external one.",
    ),
    ({"store": {"builtin": {"enabled": False}}}, "Set store.external.url=redis://host:6379"),
    (
        {"store": {"builtin": {"enabled": False}, "external": {"url": "redis://a:1", "existingSecret": "b"}}},
        "store.external.url and store.external.existingSecret are both set. Set only one of them.",
    ),
    ({"admin": {"port": 8080}}, "Set admin.port=8081."),
    ({"service": {"remotingPort": 8080}}, "Set different ports: 9876 and 8080."),
    ({"admin": {"host": "127.0.0.1"}}, "Set admin.host=0.0.0.0"),
    ({"service": {"nodePorts": {"http": 30080}}}, "Set service.type=NodePort."),
    (
        {"service": {"type": "NodePort", "nodePorts": {"http": 30080, "remoting": 30080}}},
        "Set different ports, or 0 to let the cluster choose.",
    ),
    ({"service": {"loadBalancerClass": "a/b"}}, "Set service.type=LoadBalancer."),
    ({"drain": {"terminationGracePeriodSeconds": 30}}, "Set it to 65 or more, or to 0."),
    (
        {"drain": {"preStopSeconds": 30, "seconds": 60, "terminationGracePeriodSeconds": 109}},
        "Set it to 110 or more, or to 0.",
    ),
    (
        {"autoscaling": {"enabled": True, "minReplicas": 12}},
        "autoscaling.minReplicas is 12, above maxReplicas, 10. Set maxReplicas=12 or more.",
    ),
    ({"autoscaling": {"enabled": True, "targetCPU": ""}}, "Set autoscaling.targetCPU=600m."),
    ({"pdb": {"minAvailable": "most"}}, "Set a number or a percentage"),
    ({"pdb": {"minAvailable": 3}}, "Set pdb.minAvailable=2, or pdb.enabled=false."),
    ({"pdb": {"minAvailable": 2}, "autoscaling": {"enabled": True, "minReplicas": 2}}, "Set pdb.minAvailable=1"),
    ({"replicas": 1, "pdb": {"minAvailable": 1}}, "Set pdb.minAvailable=0"),
    ({"pdb": {"minAvailable": "100%"}}, "Set pdb.maxUnavailable=1 and leave pdb.minAvailable empty."),
    ({"pdb": {"maxUnavailable": 0}}, "Set pdb.maxUnavailable=1"),
    ({"tls": {"mode": "enforcing"}}, "Set tls.existingSecret."),
    ({"tls": {"mode": "disabled", "existingSecret": "a"}}, "Set tls.mode=permissive."),
    ({"tls": {"clientAuth": "require"}}, "Set tls.trustSecret to a Secret with the key ca.crt."),
    ({"tls": {"trustSecret": "a"}}, "Set tls.clientAuth=require."),
    (
        {"metrics": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}},
        "Set metrics.podMonitor.enabled=false, or auto.",
    ),
    ({"pipeline": {"reports": {"serve": True}}}, "Set pipeline.enabled=true."),
    ({"pipeline": {"session": {"enabled": True}}}, "Set pipeline.enabled=true."),
    (
        {"pipeline": {"enabled": True, "reports": {"serve": True}}, "podAntiAffinity": "hard"},
        "Set pipeline.reports.accessModes={ReadWriteMany}, or podAntiAffinity=soft.",
    ),
    (
        {"pipeline": {"enabled": True, "reports": {"serve": True, "accessModes": ["ReadWriteOncePod"]}}},
        "but its access mode allows one pod only. Set pipeline.reports.accessModes={ReadWriteMany}.",
    ),
    (
        {"pipeline": {"enabled": True, "lake": {"url": "s3a://a", "existingClaim": "b"}}},
        "pipeline.lake.url and pipeline.lake.existingClaim are both set. Set only one of them.",
    ),
]


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=lambda case: str(case)[:60])
def test_impossible_values_are_refused_with_the_value_to_set(values: dict[str, Any], message: str) -> None:
    assert message in refusal(values)


@pytest.mark.parametrize("name", MOVED_SETTINGS)
def test_a_setting_with_its_own_value_is_refused_under_settings(name: str) -> None:
    assert name in catalogue.all_settings()
    assert f"settings.{name} cannot be set here. Set {MOVED_SETTINGS[name]}." in refusal({"settings": {name: "any"}})


def test_every_setting_that_the_chart_sets_itself_is_refused_under_settings() -> None:
    """Checks the variables of every set of values, except those given under `settings`, and the host names, of which
    the chart and the user each give some.
    """
    for path in VALUE_SETS:
        given = merged(default_values(), value_set(path))["settings"]
        names = {name.removeprefix("ROUTEBOOK_").lower() for name in worker_variables(value_set(path))}
        assert names - given.keys() - {"http_host_names"} <= MOVED_SETTINGS.keys(), path.stem


def worker_variables(values: dict[str, Any]) -> set[str]:
    objects = render(values)
    extra = {variable["name"] for variable in values.get("extraEnv", [])}
    return settings_of(objects, main_container(objects)).keys() - extra


def nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    found: dict[str, Any] = value
    return found


@pytest.mark.parametrize("value", ["commonLabels", "podLabels", "metrics.labels", "metrics.dashboard.labels"])
def test_the_charts_own_labels_cannot_be_overridden(value: str) -> None:
    own = single(render(), "Deployment")["metadata"]["labels"]
    assert len(own) == 7
    for key in own:
        assert f"{value} contains {key}" in refusal(nested(value, {key: "x"}))


@pytest.mark.parametrize(
    ("value", "kind"), [("podAnnotations", "Deployment"), ("store.builtin.podAnnotations", "StatefulSet")]
)
def test_the_charts_own_annotations_cannot_be_overridden(value: str, kind: str) -> None:
    own = single(render(), kind)["spec"]["template"]["metadata"]["annotations"]
    assert own
    for key in own:
        assert f"{value} contains {key}" in refusal(nested(value, {key: "x"}))


def test_pod_labels_take_precedence_over_common_labels() -> None:
    labels = worker_template(render({"commonLabels": {"team": "all", "a": "b"}, "podLabels": {"team": "mq"}})).labels
    assert (labels["team"], labels["a"]) == ("mq", "b")


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_all_problems_are_reported_at_once(helm: Path) -> None:
    message = refusal({"admin": {"port": 8080}, "tls": {"mode": "enforcing"}}, helm=helm)
    assert "Set admin.port=8081." in message
    assert "Set tls.existingSecret." in message


def test_every_refusal_of_the_template_is_tested() -> None:
    refusals = len(re.findall(r"append \$wrong", REQUIREMENTS))
    tested = {re.sub(r"[0-9]+|settings\.\w+", "", line) for values, _ in REFUSED for line in lines_of(refusal(values))}
    # All settings with a value of their own share one refusal in the template.
    moved = {line for line in tested if line.startswith(" cannot be set here")}
    assert len(tested - moved) + 1 >= refusals


def lines_of(text: str) -> list[str]:
    return [line.strip().removeprefix("- ") for line in text.splitlines() if line.startswith("  - ")]


@pytest.mark.parametrize(
    "values",
    [
        {"replicas": 1},
        EXTERNAL,
        {"pdb": {"minAvailable": 2}},
        {"replicas": 1, "pdb": {"minAvailable": 0}},
        {"drain": {"terminationGracePeriodSeconds": 65}},
        {"drain": {"preStopSeconds": 1, "seconds": 1}},
        {"autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 3}},
        {"tls": {"mode": "disabled"}},
        {"settings": {"bind_address": "::"}},
        {"pipeline": {"enabled": True, "reports": {"serve": True}}},
        {"pipeline": {"enabled": True, "reports": {"serve": True}}, "podAntiAffinity": "hard", "replicas": 1},
        {"pipeline": {"enabled": True, "reports": {"serve": True, "existingClaim": "a"}}, "podAntiAffinity": "hard"},
    ],
    ids=str,
)
@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_valid_combinations_are_accepted(values: dict[str, Any], helm: Path) -> None:
    assert render(values, helm=helm)
