"""The headline: failovers that lose acknowledged writes, under churn, are repaired by the brokers themselves."""

import os
from pathlib import Path

import pytest

from tests.faults.failover_losses import REPAIR_AFTER_PERIOD_S, WRITES_WORK_WITHIN_S, run
from tests.support.figures import Figures

pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("ROUTEBOOK_TEST_FAILOVERS", "4"))
"""`python -m tests.faults.failover_losses` runs thirty."""


async def test_acknowledged_writes_that_a_failover_loses_are_repaired(
    tmp_path: Path, seed: int, figure: Figures
) -> None:
    result = await run(count=COUNT, seed=seed, folder=tmp_path)
    for name, value in result.figures().items():
        figure.fact(name, str(value))
    assert result.violations == []
    figure("acknowledged writes lost", result.lost_writes, at_least=1)
    figure("losses noticed by workers", result.lost_tails_noticed, at_least=1)
    slowest = max(failover.writes_work_s for failover in result.failovers)
    figure("writes work again after", slowest, "s", at_most=WRITES_WORK_WITHIN_S)
    repaired = max(failover.repaired_s for failover in result.failovers)
    figure("lost registrations repaired after", repaired, "s", at_most=result.period_s + REPAIR_AFTER_PERIOD_S)
    figure("lookups of known topics", result.lookups.get("0", 0), at_least=500 * COUNT)
