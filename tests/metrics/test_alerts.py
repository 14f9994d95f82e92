"""The alert rules: each complete, each explained, each tried in both directions by Prometheus' own tool."""

import json
import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.metrics.alert_cases import CASES, JOB, NAMESPACE, Case, Series, on
from tests.metrics.promtool import needs_promtool, promtool
from tests.metrics.rules_file import ALERTS, Alert, read_alerts

ALL = read_alerts()
BY_NAME = {alert.name: alert for alert in ALL}
RUNBOOK = ROOT / "docs/runbook.md"
SCRAPES = "30s"


def each_alert(alert: Alert) -> str:
    return alert.name


@pytest.mark.parametrize("alert", ALL, ids=each_alert)
def test_it_says_all_that_whoever_is_woken_needs(alert: Alert) -> None:
    assert alert.labels["severity"] in ("critical", "warning", "info")
    assert re.fullmatch(r"[1-9][0-9]*[smh]", alert.wait), "a single bad scrape must not wake anybody"
    assert alert.annotations.keys() == {"summary", "description", "runbook_url"}
    assert all(alert.annotations.values())
    assert "{{ $labels.job }}" in alert.annotations["summary"], "which service"
    assert alert.annotations["runbook_url"] == f"docs/runbook.md#{alert.name.lower()}"


@pytest.mark.parametrize("alert", ALL, ids=each_alert)
def test_the_runbook_says_what_it_means_what_to_look_at_and_what_to_do(alert: Alert) -> None:
    sections = re.split(r"^### ", RUNBOOK.read_text(), flags=re.MULTILINE)
    (section,) = [one for one in sections if one.startswith(f"{alert.name}\n")]
    for words in ("**Means:**", "**Look at:**", "**Do:**"):
        assert words in section


def test_the_runbook_explains_no_alert_that_is_gone() -> None:
    assert re.findall(r"^### (\w+)$", RUNBOOK.read_text(), flags=re.MULTILINE) == [alert.name for alert in ALL]


def test_each_is_tried_in_both_directions() -> None:
    assert {case.alert for case in CASES} == BY_NAME.keys()
    assert {case.alert for case in CASES if case.silent} == BY_NAME.keys()


@needs_promtool
def test_prometheus_takes_the_rules() -> None:
    done = promtool("check", "rules", ALERTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALL)} rules found" in done.stdout, "the reader of these tests has read all of them"


def _sample_of(case: Case) -> str:
    labels = {
        "alertname": case.alert,
        "alertstate": "firing",
        "severity": BY_NAME[case.alert].labels["severity"],
        "namespace": NAMESPACE,
        "job": JOB,
        **case.labels,
    }
    return "ALERTS{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _test(case: Case, series: Series, samples: list[dict[str, object]]) -> dict[str, object]:
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


def _run(tests: list[dict[str, object]], folder: Path) -> str:
    path = folder / "tests.yaml"
    path.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": SCRAPES, "tests": tests}))
    done = promtool("test", "rules", path)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.slow
@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_it_fires_when_it_must_and_not_otherwise(case: Case, tmp_path: Path) -> None:
    tests = [_test(case, case.fires, [{"labels": _sample_of(case), "value": 1}])]
    tests += [_test(case, silent, []) for silent in case.silent]
    assert _run(tests, tmp_path) == ""
    carried = {"namespace", "job", *case.labels}
    assert BY_NAME[case.alert].labels_used <= carried, "a text that names a label the alert has not"


@pytest.mark.slow
@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_another_service_beside_it_changes_nothing(case: Case, tmp_path: Path) -> None:
    """Another release in another namespace, whose workers have the same names and are in the best of health."""
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
    assert _run([_test(case, case.fires | other, [{"labels": _sample_of(case), "value": 1}])], tmp_path) == ""
