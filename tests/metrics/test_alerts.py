"""Every alert rule is complete and explained in the runbook, and promtool shows that it fires when it should."""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.metrics.alert_cases import CASES, JOB, NAMESPACE, Case, Series, on
from tests.metrics.promtool import needs_promtool, promtool
from tests.metrics.rules_file import ALERTS, Alert, read_alerts

ALL = read_alerts()
BY_NAME = {alert.name: alert for alert in ALL}
RUNBOOK = ROOT / "docs/runbook.md"
RUNBOOK_URL = "/blob/main/docs/runbook.md"
"""Behind the public address of the project, which is in pyproject.toml alone."""
SCRAPES = "30s"
LOG_TEXTS = (
    "restarting it in",
    "cannot go on",
    "requests were cut off.",
    "TLS cannot use",
    "The history cannot be followed",
    "another history",
    "wrote back",
    "Recovery has ended",
    "Lost the lease",
    "Mass disconnect",
    "Most workers are gone",
    "were trimmed earlier than intended",
)
"""Parts of log lines that the runbook tells operators to look for."""


def project_url() -> str:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return str(document["tool"]["hatch"]["metadata"]["hooks"]["custom"]["project-url"])


def each_alert(alert: Alert) -> str:
    return alert.name


@pytest.mark.parametrize("alert", ALL, ids=each_alert)
def test_an_alert_has_severity_duration_and_annotations(alert: Alert) -> None:
    assert alert.labels["severity"] in ("critical", "warning", "info")
    assert re.fullmatch(r"[1-9][0-9]*[smh]", alert.pending_for), "a single bad scrape must not fire an alert"
    assert alert.annotations.keys() == {"summary", "description", "runbook_url"}
    assert all(alert.annotations.values())
    assert "{{ $labels.job }}" in alert.annotations["summary"], "the summary must name the service"
    assert alert.annotations["runbook_url"] == f"{project_url()}{RUNBOOK_URL}#{alert.name.lower()}"


@pytest.mark.parametrize("alert", ALL, ids=each_alert)
def test_the_runbook_section_has_its_three_parts(alert: Alert) -> None:
    sections = re.split(r"^### ", RUNBOOK.read_text(), flags=re.MULTILINE)
    (section,) = [text for text in sections if text.startswith(f"{alert.name}\n")]
    for part in ("**Meaning:**", "**Check:**", "**Action:**"):
        assert part in section


@pytest.mark.parametrize("alert", ALL, ids=each_alert)
def test_the_runbook_section_has_commands_to_paste_and_none_of_the_stores_own(alert: Alert) -> None:
    """tests/documents/test_pages_run.py runs them."""
    section = re.split(rf"^### {alert.name}\n", RUNBOOK.read_text(), flags=re.MULTILINE)[1].partition("\n### ")[0]
    assert re.search(r"^```sh\n(?:routebook|curl|openssl)", section, re.MULTILINE)
    assert re.findall(r"redis-cli|valkey-cli|\bSLOWLOG\b|\bCONFIG SET\b|\bXINFO\b|`INFO`", section) == []


def test_the_index_of_the_runbook_lists_every_alert_under_its_severity() -> None:
    index = RUNBOOK.read_text().partition("## By severity\n")[2].partition("\n## ")[0]
    listed = {
        severity: re.findall(r"\[(\w+)\]\(#(\w+)\)", links)
        for severity, links in re.findall(r"^\*\*(\w+)\*\*,(.*?)(?=\n\n)", index, re.MULTILINE | re.DOTALL)
    }
    expected: dict[str, list[tuple[str, str]]] = {}
    for alert in ALL:
        expected.setdefault(alert.labels["severity"], []).append((alert.name[9:], alert.name.lower()))
    assert listed == expected


def test_the_runbook_has_exactly_the_existing_alerts_in_their_order() -> None:
    assert re.findall(r"^### (\w+)$", RUNBOOK.read_text(), flags=re.MULTILINE) == [alert.name for alert in ALL]


@pytest.mark.parametrize("text", LOG_TEXTS)
def test_a_log_line_that_the_runbook_names_exists(text: str) -> None:
    assert text in RUNBOOK.read_text()
    strings = (
        node.value
        for path in (ROOT / "service").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert any(text in string for string in strings)


def test_every_alert_has_cases_that_fire_and_cases_that_do_not() -> None:
    assert {case.alert for case in CASES} == BY_NAME.keys()
    assert {case.alert for case in CASES if case.silent} == BY_NAME.keys()


@needs_promtool
def test_prometheus_accepts_the_rules() -> None:
    done = promtool("check", "rules", ALERTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALL)} rules found" in done.stdout, "read_alerts must have found all rules"


def _alert_series(case: Case) -> str:
    labels = {
        "alertname": case.alert,
        "alertstate": "firing",
        "severity": BY_NAME[case.alert].labels["severity"],
        "namespace": NAMESPACE,
        "job": JOB,
        **case.labels,
    }
    return "ALERTS{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _promtool_test(case: Case, series: Series, samples: list[dict[str, object]]) -> dict[str, object]:
    return {
        "interval": SCRAPES,
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{case.alert}",alertstate="firing"}}',
                "eval_time": case.at,
                "exp_samples": samples,
            }
        ],
    }


def _failures(tests: list[dict[str, object]], folder: Path) -> str:
    path = folder / "tests.yaml"
    path.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": SCRAPES, "tests": tests}))
    done = promtool("test", "rules", path)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.slow
@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_exactly_when_it_should(case: Case, tmp_path: Path) -> None:
    tests = [_promtool_test(case, case.fires, [{"labels": _alert_series(case), "value": 1}])]
    tests += [_promtool_test(case, silent, []) for silent in case.silent]
    assert _failures(tests, tmp_path) == ""
    labels = {"namespace", "job", *case.labels}
    assert BY_NAME[case.alert].labels_used <= labels, "an annotation uses a label that the alert does not have"


@pytest.mark.slow
@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_another_healthy_service_does_not_prevent_an_alert(case: Case, tmp_path: Path) -> None:
    """The other release is in another namespace, and its workers have the same names."""
    healthy = {
        "routebook_leader": "1x200",
        "routebook_replica_stale_seconds": "0x200",
        "routebook_scans_total": "0+6x200",
        "routebook_build_info": "1x200",
        "routebook_replica_version": "900x200",
        "routebook_replica_digest": "5x200",
        "routebook_brokers": "1000000x200",
        "routebook_draining": "0x200",
    }
    other = {
        on("a", metric).replace(f'"{NAMESPACE}"', '"other"').replace(f'"{JOB}"', '"other/names"'): values
        for metric, values in healthy.items()
    }
    test = _promtool_test(case, case.fires | other, [{"labels": _alert_series(case), "value": 1}])
    assert _failures([test], tmp_path) == ""
