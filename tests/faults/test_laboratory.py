"""The laboratory itself: a run with one dead and one silent broker proves all invariants on every topology, on every
server found on this machine.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.faults.invariants import INVARIANTS
from tests.faults.laboratory import Laboratory, Store, cluster_store, sentinel_store, single_store
from tests.support.figures import Figures
from tests.support.servers import Server, find_servers
from tests.support.waiting import until

pytestmark = pytest.mark.slow

TOPOLOGIES = {"single": single_store, "sentinel": sentinel_store, "cluster": cluster_store}


@pytest.mark.parametrize("server", find_servers(), ids=str)
@pytest.mark.parametrize("topology", TOPOLOGIES)
async def test_a_calm_run_with_one_dead_broker_proves_all_invariants(
    topology: str, server: Server, namespace_name: str, tmp_path: Path, seed: int, figure: Figures
) -> None:
    start: Callable[[Server], AbstractContextManager[Store]] = TOPOLOGIES[topology]
    with start(server) as store:
        async with Laboratory(store, namespace_name, tmp_path, seed) as laboratory:
            await laboratory.start(workers=2, brokers=6)
            await laboratory.calm()
            laboratory.brokers["broker-1"].kill()
            laboratory.brokers["broker-2"].fall_silent()
            await until(laboratory.all_are_complete)
            await asyncio.sleep(1)
            await laboratory.brokers["broker-1"].revive()
            await until(laboratory.all_are_complete)
            results = await laboratory.prove(required=list(INVARIANTS))
    figure("comparisons", sum(result.compared for result in results.values()), at_least=1000)
