"""Values that cannot work together are refused before anything is changed, and the refusal names the value to set."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.chart.rendering import CHART, refusal, render
from tests.chart.tools import HELMS

EXTERNAL: dict[str, Any] = {"store": {"builtin": {"enabled": False}, "external": {"url": "redis://store:6379"}}}

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"settings": {"redis_url": "redis://a:1"}}, "Set store.external.url, or store.external.existingSecret."),
    ({"settings": {"drain_ms": 1000}}, "Set drain.seconds."),
    ({"settings": {"workers": 4}}, "Set replicas: one process a pod."),
    ({"settings": {"admin_token": "x"}}, "Set existingSecret, a Secret with the key ROUTEBOOK_ADMIN_TOKEN."),
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
        {"pipeline": {"enabled": True, "lake": {"url": "s3a://a", "existingClaim": "b"}}},
        "pipeline.lake.url and pipeline.lake.existingClaim are both given. Set one of them.",
    ),
]


@pytest.mark.parametrize(("values", "said"), REFUSED, ids=lambda case: str(case)[:60])
def test_what_cannot_work_is_refused_with_the_value_to_set(values: dict[str, Any], said: str) -> None:
    assert said in refusal(values)


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_everything_that_is_wrong_is_said_at_once(helm: Path) -> None:
    said = refusal({"admin": {"port": 8080}, "tls": {"mode": "enforcing"}}, helm=helm)
    assert "Set admin.port=8081." in said
    assert "Set tls.existingSecret." in said


def test_every_refusal_is_among_these() -> None:
    text = (CHART / "templates" / "requirements.yaml").read_text()
    places = len(re.findall(r"append \$wrong", text))
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
    ],
    ids=str,
)
@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_what_can_work_is_taken(values: dict[str, Any], helm: Path) -> None:
    assert render(values, helm=helm)
