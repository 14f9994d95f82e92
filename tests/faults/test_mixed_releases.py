"""Row 29: workers of this release and of the one before it serve together, under load, upward and downward."""

import asyncio
import io
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.faults.laboratory import Laboratory, single_store
from tests.faults.traffic import Worker
from tests.runtime.running import Running
from tests.support.figures import Figures

pytestmark = pytest.mark.slow

RELEASE_BEFORE = "0e7c96e"
"""The last commit before this release with the same layout of the store (2)."""
LAYOUT_BEFORE = "485b8fc"
"""The last commit with layout 1. Its workers must not run beside newer ones (CHANGELOG)."""


def check_out(commit: str, folder: Path) -> dict[str, str]:
    """Extracts that state of the repository. Returns the environment in which `python -m routebook` runs it."""
    try:
        archive = subprocess.run(
            ["git", "archive", commit, "service", "lua", "pipeline"], cwd=ROOT, capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"commit {commit} is not in this checkout")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return {"PYTHONPATH": os.pathsep.join(str(folder / name) for name in ("service", "pipeline"))}


async def _replace(laboratory: Laboratory, worker: Worker, env: dict[str, str] | None) -> None:
    """Starts the other release first, then stops the worker as an orchestrator does."""
    laboratory.mark(f"{worker.name} is replaced")
    await laboratory.start_worker(env=env)
    # Clients that find no connection use the next worker. Those of the stopped one are asked to move while it drains.
    worker.alive = False
    assert await asyncio.to_thread(worker.process.stop, signal.SIGTERM) == 0


async def test_a_rolling_upgrade_and_downgrade_lose_no_lookup_and_no_broker(
    namespace_name: str, tmp_path: Path, seed: int, figure: Figures
) -> None:
    env = check_out(RELEASE_BEFORE, tmp_path / "release-before")
    with single_store() as store:
        async with Laboratory(store, namespace_name, tmp_path, seed) as laboratory:
            for _ in range(2):
                await laboratory.start_worker(env=env)
            await laboratory.start(workers=0, brokers=9)
            fingerprints = {await _scripts_of(worker) for worker in laboratory.running_workers}
            for release in (None, env):
                for worker in laboratory.running_workers:
                    await _replace(laboratory, worker, release)
                    await laboratory.calm()
                    fingerprints |= {await _scripts_of(one) for one in laboratory.running_workers}
            figure("different sets of scripts that ran", len(fingerprints), exactly=2)
            lookups = laboratory.recording.lookups
            figure("lookups", len(lookups), at_least=500)
            figure(
                "lookups without an answer, also when repeated", sum(c.failed for c in laboratory.clients), exactly=0
            )
            figure("lookups repeated", sum(one.attempt == 2 for one in lookups))
            await laboratory.prove(required=("I1", "I4", "I5", "I6", "I9"))


async def _scripts_of(worker: Worker) -> str:
    return str((await asyncio.to_thread(worker.process.get, "/v1/status")).json()["scripts"])


async def test_releases_with_different_layouts_refuse_to_run_side_by_side(
    namespace_name: str, tmp_path: Path, figure: Figures
) -> None:
    """The steps of the CHANGELOG: stop all workers, then start the new ones. A new worker that is started too early
    refuses to start, and so does an old one afterwards. The worker that runs is not disturbed, and the broker stays.
    """
    env = check_out(LAYOUT_BEFORE, tmp_path / "release-before")
    with single_store() as store:
        command = ("serve", "--redis-url", store.url, "--namespace", namespace_name, "--bind-address", "127.0.0.1")
        with Running(*command, folder=tmp_path, env=env) as old:
            await asyncio.to_thread(old.register, "broker-a", "TopicA")
            with pytest.raises(AssertionError, match="Workers of an older version are running"):
                await asyncio.to_thread(Running(*command, folder=tmp_path).__enter__)
            answer = await asyncio.to_thread(old.get, "/v1/routes/TopicA")
            figure("status of a lookup at the old worker after the refusal", answer.status_code, exactly=200)
            assert await asyncio.to_thread(old.stop) == 0
        with Running(*command, folder=tmp_path) as new:
            answer = await asyncio.to_thread(new.get, "/v1/routes/TopicA")
            figure("status of a lookup at the new worker", answer.status_code, exactly=200)
            with pytest.raises(AssertionError, match="layout 2"):
                await asyncio.to_thread(Running(*command, folder=tmp_path, env=env).__enter__)
            answer = await asyncio.to_thread(new.get, "/v1/routes/TopicA")
            figure("status of a lookup at the new worker after that", answer.status_code, exactly=200)
