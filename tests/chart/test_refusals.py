"""Values that cannot work together are refused before anything is changed, and the refusal names the value to set."""

import re
from pathlib import Path
from typing import Any

import pytest

from routebook.settings import catalogue
from tests.chart.objects import main_container, one, settings_of, worker
from tests.chart.rendering import CHART, VALUE_SETS, default_values, merged, refusal, render, value_set
from tests.chart.tools import HELMS

EXTERNAL: dict[str, Any] = {"store": {"builtin": {"enabled": False}, "external": {"url": "redis://store:6379"}}}

REQUIREMENTS = (CHART / "templates" / "requirements.yaml").read_text()
ELSEWHERE = dict(re.findall(r'^  "(\w+)" "([^"]+)"$', REQUIREMENTS, re.MULTILINE))
"""Settings that have another home in the chart, and which."""

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"settings": {"drain_ms": 1000}}, "Set drain.seconds."),
    ({"settings": {"bind_address": "127.0.0.1"}}, 'Leave it out, or set it to 0.0.0.0 or "::".'),
    (
        {"podLabels": {"app.kubernetes.io/name": "names"}},
        "podLabels has app.kubernetes.io/name, which the chart gives itself. Leave it out;",
    ),
    (
        {"store": {"external": {"url": "redis://store:6379"}}},
        "Set store.builtin.enabled=false to use that one.",
    ),
    ({"store": {"builtin": {"enabled": False}}}, "Set store.external.url=redis://host:6379"),
    (
        {"store": {"builtin": {"enabled": False}, "external": {"url": "redis://a:1", "existingSecret": "b"}}},
        "store.external.url and store.external.existingSecret are both given. Set one of them.",
    ),
    ({"admin": {"port": 8080}}, "Set admin.port=8081."),
    ({"service": {"remotingPort": 8080}}, "Set them apart: 9876 and 8080."),
    ({"admin": {"host": "127.0.0.1"}}, "Set admin.host=0.0.0.0"),
    ({"service": {"nodePorts": {"http": 30080}}}, "Set service.type=NodePort."),
    (
        {"service": {"type": "NodePort", "nodePorts": {"http": 30080, "remoting": 30080}}},
        "Set two, or 0 for the cluster's choice.",
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
    ({"pdb": {"minAvailable": "100%"}}, "Set pdb.maxUnavailable=1 and pdb.minAvailable to nothing."),
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
    (
        {"pipeline": {"enabled": True, "reports": {"serve": True}}, "podAntiAffinity": "hard"},
        "Set pipeline.reports.accessModes={ReadWriteMany}, or podAntiAffinity=soft.",
    ),
    (
        {"pipeline": {"enabled": True, "reports": {"serve": True, "accessModes": ["ReadWriteOncePod"]}}},
        "which the job and all workers do. Set pipeline.reports.accessModes={ReadWriteMany}.",
    ),
    (
        {"pipeline": {"enabled": True, "lake": {"url": "s3a://a", "existingClaim": "b"}}},
        "pipeline.lake.url and pipeline.lake.existingClaim are both given. Set one of them.",
    ),
]


@pytest.mark.parametrize(("values", "said"), REFUSED, ids=lambda case: str(case)[:60])
def test_what_cannot_work_is_refused_with_the_value_to_set(values: dict[str, Any], said: str) -> None:
    assert said in refusal(values)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_setting_that_has_a_value_of_its_own_is_sent_there(name: str) -> None:
    assert name in catalogue.all_settings()
    assert f"settings.{name} is given. Set {ELSEWHERE[name]}." in refusal({"settings": {name: "any"}})


def test_what_the_chart_sets_by_itself_cannot_be_a_setting_as_well() -> None:
    """All that any set of values brings, beside what stands under `settings`."""
    for path in VALUE_SETS:
        given = merged(default_values(), value_set(path))["settings"]
        names = {name.removeprefix("ROUTEBOOK_").lower() for name in worker_variables(value_set(path))}
        assert names - given.keys() <= ELSEWHERE.keys(), path.stem


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
def test_none_of_the_charts_own_labels_can_be_given_again(value: str) -> None:
    own = one(render(), "Deployment")["metadata"]["labels"]
    assert len(own) == 7
    for key in own:
        assert f"{value} has {key}" in refusal(nested(value, {key: "x"}))


@pytest.mark.parametrize(
    ("value", "kind"), [("podAnnotations", "Deployment"), ("store.builtin.podAnnotations", "StatefulSet")]
)
def test_none_of_the_charts_own_annotations_can_be_given_again(value: str, kind: str) -> None:
    own = one(render(), kind)["spec"]["template"]["metadata"]["annotations"]
    assert own
    for key in own:
        assert f"{value} has {key}" in refusal(nested(value, {key: "x"}))


def test_a_label_of_one_object_is_stronger_than_that_of_all() -> None:
    labels = worker(render({"commonLabels": {"team": "all", "a": "b"}, "podLabels": {"team": "mq"}})).labels
    assert (labels["team"], labels["a"]) == ("mq", "b")


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_everything_that_is_wrong_is_said_at_once(helm: Path) -> None:
    said = refusal({"admin": {"port": 8080}, "tls": {"mode": "enforcing"}}, helm=helm)
    assert "Set admin.port=8081." in said
    assert "Set tls.existingSecret." in said


def test_every_refusal_is_among_these() -> None:
    places = len(re.findall(r"append \$wrong", REQUIREMENTS))
    said = {re.sub(r"[0-9]+|settings\.\w+", "", line) for values, _ in REFUSED for line in lines_of(refusal(values))}
    # Those for settings that have another home are one place and many sentences.
    elsewhere = {line for line in said if line.startswith(" is given")}
    assert len(said - elsewhere) + 1 >= places


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
def test_what_can_work_is_taken(values: dict[str, Any], helm: Path) -> None:
    assert render(values, helm=helm)
