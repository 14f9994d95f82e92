"""A simulated fleet with a real service: the route table matches the journal."""

import asyncio
from pathlib import Path

import pytest

from routebook.simulate.plan import Churn, Layout
from routebook.simulate.records import Journal
from routebook.simulate.simulation import Options, Simulation
from tests.runtime.running import Running
from tests.support.simulated import expected_table, first_address, lines_of, table_of
from tests.support.waiting import until

ALLOWED_FAILURES = {"late"}
"""Failures that a busy machine may cause: lookups that took longer than three seconds."""


async def test_the_route_table_matches_the_journal(service: Running, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    layout = Layout(brokers=3, slaves=1, clusters=2, topics=5, first_address=first_address())
    options = Options([service.remoting], layout, clients=4, poll_s=0.1)
    with path.open("w") as file:
        simulation = Simulation(options, Journal(file))

        async def agrees() -> bool:
            return await table_of(service.remoting) == expected_table(lines_of(path))

        async def is_empty() -> bool:
            return await table_of(service.remoting) == ({}, {})

        try:
            await simulation.start()
            await until(agrees)
            seats, topics = expected_table(lines_of(path))
            assert {name: sorted(ids) for name, ids in seats.items()} == {name: [0, 1] for name in simulation.groups}
            assert {"sim-topic-1", "TBW102", "sim-broker-1", "sim-cluster-2"} <= topics.keys()
            await until(lambda: simulation.counts.found > 20)

            master, slave = simulation.groups["sim-broker-1"]
            await master.crash()
            await until(agrees)
            assert (await table_of(service.remoting))[0]["sim-broker-1"] == {1: slave.address}
            await slave.crash()
            await until(agrees)
            assert "sim-broker-1" not in (await table_of(service.remoting))[0]
            await master.start("return")
            await until(agrees)
            assert (await table_of(service.remoting))[0]["sim-broker-1"] == {0: master.address}
        finally:
            await simulation.end()
    await until(is_empty)  # 104 is answered before it takes effect.
    assert simulation.counts.failures.keys() <= ALLOWED_FAILURES
    assert simulation.counts.registrations.keys() == {"0"}
    assert [line["n"] for line in lines_of(path)] == list(range(1, len(lines_of(path)) + 1))
    assert lines_of(path)[-1]["event"] == "end"


async def test_a_fleet_continues_when_one_of_its_name_servers_stops(
    service: Running, other_service: Running, tmp_path: Path
) -> None:
    path = tmp_path / "journal"
    layout = Layout(brokers=3, topics=3, first_address=first_address())
    options = Options([service.remoting, other_service.remoting], layout, clients=6, poll_s=0.1)
    with path.open("w") as file:
        simulation = Simulation(options, Journal(file))
        counts = simulation.counts
        try:
            await simulation.start()
            await until(lambda: counts.found > 20)
            await asyncio.to_thread(other_service.stop)
            # Each of its clients may fail once, before it changes to the other name server.
            found, failed = counts.found, counts.failures["unreachable"]
            await until(lambda: counts.switches > 0 and counts.found > found + 100)
            assert counts.failures["unreachable"] - failed <= options.clients
            await simulation.brokers[0].register("period")
            last = lines_of(path)[-1]
            assert last["servers"][service.remoting]["code"] == 0
            assert "error" in last["servers"][other_service.remoting]
        finally:
            await simulation.end()


@pytest.mark.slow
async def test_after_a_minute_of_trouble_both_workers_match_the_journal(
    service: Running, other_service: Running, tmp_path: Path
) -> None:
    path = tmp_path / "journal"
    churn = Churn(
        crash_every_s=2,
        deploy_every_s=3,
        switch_every_s=3,
        silence_every_s=8,
        permission_every_s=5,
        flap_every_s=10,
        topics_every_s=0.5,
        timeout_ms=11_000,
        duration_s=60,
    )
    layout = Layout(brokers=20, slaves=1, clusters=3, topics=40, first_address=first_address())
    workers = [service.remoting, other_service.remoting]
    options = Options(workers, layout, churn, seed=7, clients=50, poll_s=1.0, period_s=10, timeout_ms=churn.timeout_ms)
    with path.open("w") as file:
        simulation = Simulation(options, Journal(file))

        async def agrees() -> bool:
            truth = expected_table(lines_of(path))
            return all([await table_of(worker) == truth for worker in workers])

        async def is_empty() -> bool:
            return all([await table_of(worker) == ({}, {}) for worker in workers])

        try:
            await simulation.start()
            await simulation.run_plan()
            await until(agrees, timeout_s=30, every_s=0.5)
            seats, _ = expected_table(lines_of(path))
            assert {name: len(ids) for name, ids in seats.items()} == dict.fromkeys(simulation.groups, 2)
        finally:
            await simulation.end()
    await until(is_empty)  # 104 is answered before it takes effect.
    counts = simulation.counts
    assert counts.failures.keys() <= ALLOWED_FAILURES
    assert counts.registrations.keys() == {"0"}
    kinds = {"crash", "deploy", "switch", "silence", "permission", "flap"}
    assert kinds | {"topic-created", "topic-resized", "topic-deleted"} == counts.troubles.keys()
    causes = {
        cause for cause in ("connection-lost", "expired", "unregistered") if cause in service.log + other_service.log
    }
    assert causes == {"connection-lost", "expired", "unregistered"}
