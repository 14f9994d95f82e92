"""Apache's name server handles simulated brokers as the tests expect, so they stand for real ones."""

from pathlib import Path

import pytest

from routebook.simulate.plan import Churn, Layout
from routebook.simulate.records import Journal
from routebook.simulate.simulation import Options, Simulation
from tests.conformance.conftest import Release
from tests.conformance.java_processes import START_SECONDS, ApacheNameServer
from tests.support.simulated import expected_table, first_address, lines_of, table_of
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]


async def test_apaches_name_server_has_the_table_of_a_simulated_fleet(release: Release, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    layout = Layout(brokers=6, slaves=1, clusters=2, topics=10, first_address=first_address())
    churn = Churn(
        crash_every_s=3,
        deploy_every_s=3,
        switch_every_s=3,
        permission_every_s=5,
        topics_every_s=0.5,
        timeout_ms=11_000,
        duration_s=30,
    )
    with ApacheNameServer(release("5.5.0"), tmp_path / "name-server") as server, path.open("w") as file:
        options = Options(
            [server.address], layout, churn, clients=10, poll_s=0.5, period_s=10, timeout_ms=churn.timeout_ms
        )
        simulation = Simulation(options, Journal(file))

        async def agrees() -> bool:
            return await table_of(server.address) == expected_table(lines_of(path))

        async def is_empty() -> bool:
            return await table_of(server.address) == ({}, {})

        try:
            await simulation.start()
            await until(agrees, timeout_s=START_SECONDS)
            await simulation.run_plan()
            await until(agrees, timeout_s=START_SECONDS)
            seats, _ = expected_table(lines_of(path))
            assert {name: len(ids) for name, ids in seats.items()} == dict.fromkeys(simulation.groups, 2)
        finally:
            await simulation.end()
        await until(is_empty, timeout_s=START_SECONDS)
    assert simulation.counts.registrations.keys() == {"0"}
    assert simulation.counts.failed == 0, simulation.counts.failures
    assert simulation.counts.found
