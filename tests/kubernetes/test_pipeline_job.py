"""The nightly job runs once, and the workers serve its report."""

import re
import time
from typing import Final

import pytest

from tests.kubernetes import figures
from tests.kubernetes.cluster.cluster import Cluster, has_condition
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import DRAIN, Release

pytestmark = pytest.mark.cluster

JOB_S = 900
"""Spark on processors that three nodes share: five minutes were window."""
_READ: Final = re.compile(r" changes: (\d+) entries, up to version (\d+)$", re.MULTILINE)


@pytest.mark.usefixtures("pipeline_image")
def test_the_cron_job_writes_a_report_that_the_workers_serve(cluster: Cluster) -> None:
    release = Release(cluster, "nightly")
    release.remove()
    try:
        # Several nodes can mount the claims, because they are folders that all nodes share.
        release.install({**DRAIN, "replicas": 2, "pipeline.enabled": True, "pipeline.reports.serve": True})
        release.wait_until_consistent(workers=2)
        with Fleet(cluster.addresses.host, [release.remoting_address()], brokers=2, clients_of_each_kind=1):
            time.sleep(2)
        version = release.version()

        start = time.monotonic()
        release.kubectl("create", "job", "tonight", f"--from=cronjob/{release.full_name}-pipeline")
        cluster.wait(lambda: _job_has_ended(release), "the job", JOB_S)
        took = time.monotonic() - start

        log = release.kubectl("logs", "job/tonight", "--tail=-1")
        assert cluster.get("jobs/tonight", release.name)["status"].get("succeeded") == 1, log
        # The report is about yesterday and therefore empty; only the log shows that everything was read.
        ((entries, last),) = _READ.findall(log)
        assert int(last) >= version > 0
        assert entries == last, log
        report = release.http("/v1/reports/latest", follow_redirects=True)
        assert report.status_code == 200
        assert "text/html" in report.headers["content-type"]
        assert "</html>" in report.text
        figures.record("nightly job", {"ended after s": took, "size of its report, bytes": len(report.content)})
    finally:
        release.remove()


def _job_has_ended(release: Release) -> bool:
    return has_condition(release.cluster.get("jobs/tonight", release.name), "Complete", "Failed")
