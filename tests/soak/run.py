"""One long run: starts everything, injects faults until the time is up, and gives the result."""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import psutil  # type: ignore[import-untyped]

from routebook.simulate.plan import Layout, groups_of, topics_of
from tests.soak.measuring import Lookups, Samples
from tests.soak.plant import FAULTS, WORKERS, Fleet, Plant
from tests.support.simulated import first_address
from tests.support.waiting import until

SAMPLE_EVERY_S: Final = 10.0
PAUSE_S: Final = (12.0, 38.0)
"""Time between two faults."""
QUIET_S: Final = 20.0
"""At the end, without faults, before the workers are compared."""
STEADY: Final = Layout(brokers=8, slaves=0, clusters=1, topics=12, prefix="steady")
CHANGING: Final = (
    *("--brokers", "24", "--slaves", "1", "--clusters", "2", "--topics", "60", "--clients", "60"),
    *("--timeout-ms", "30000", "--crash-every", "20s", "--deploy-every", "30s", "--switch-every", "60s"),
    *("--silence-every", "90s", "--permission-every", "60s", "--flap-every", "120s", "--topics-every", "5s"),
)
SIGNS_OF_A_DEFECT: Final = ("Traceback", "Exception in", "never awaited")


@dataclass
class Result:
    seed: int
    seconds: float
    samples: Samples
    faults: list[tuple[str, float, float]]
    lookups: Counter[str]
    restarts: int
    failed_starts: int
    cpu_percent: dict[str, float]
    failures: list[str]
    fleet: dict[str, Any] = field(default_factory=dict)

    @property
    def fault_counts(self) -> Counter[str]:
        return Counter(kind for kind, _, _ in self.faults)


class Soak:
    def __init__(self, folder: Path, *, seed: int, minutes: float, pause_s: tuple[float, float] = PAUSE_S) -> None:
        self._folder = folder
        self._seed = seed
        self._seconds = minutes * 60
        self._pause_s = pause_s
        self._faults: list[tuple[str, float, float]] = []
        self._failures: list[str] = []

    async def run(self) -> Result:
        async with Plant(self._folder) as plant:
            steady = plant.fleet(self._seed, STEADY.prefix, first_address(), *_layout_options(STEADY))
            changing = plant.fleet(self._seed, "churn", first_address(), *CHANGING)
            try:
                expected = steady_routes(self._seed)
                await until(lambda: self._have_steady_routes(plant, expected), every_s=0.5)
                return await self._measure(plant, expected, {"steady": steady, "changing": changing})
            finally:
                steady.kill()
                changing.kill()

    async def _measure(
        self, plant: Plant, expected: Mapping[str, frozenset[str]], fleets: Mapping[str, Fleet]
    ) -> Result:
        samples = Samples()
        lookups = {worker.name: Lookups(worker, expected).start() for worker in plant.workers}
        cpu_before, began = _cpu_seconds(plant), time.monotonic()
        sampling = asyncio.create_task(self._sample(plant, samples, lookups))
        try:
            await self._inject_faults(plant, samples)
            await asyncio.sleep(QUIET_S)
            await self._compare_workers(plant)
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)
            for one in lookups.values():
                await asyncio.to_thread(one.stop)
        seconds = time.monotonic() - began
        cpu = {name: 100 * (after - cpu_before.get(name, 0)) / seconds for name, after in _cpu_seconds(plant).items()}
        self._check(plant, lookups, fleets)
        return Result(
            seed=self._seed,
            seconds=seconds,
            samples=samples,
            faults=self._faults,
            lookups=sum((one.results for one in lookups.values()), Counter()),
            restarts=plant.workers[1].restarts,
            failed_starts=plant.workers[1].failed_starts,
            cpu_percent=cpu,
            failures=self._failures,
        )

    async def _inject_faults(self, plant: Plant, samples: Samples) -> None:
        rng = random.Random(f"{self._seed}/faults")
        kinds: list[str] = []
        while True:
            await asyncio.sleep(rng.uniform(*self._pause_s))
            if samples.now() > self._seconds - QUIET_S:
                return
            # All kinds come up equally often, in a random order.
            kinds = kinds or rng.sample(sorted(FAULTS), len(FAULTS))
            kind = kinds.pop()
            began = samples.now()
            try:
                await FAULTS[kind](plant, rng)
            except Exception as error:  # the run is to end with a report
                self._failures.append(f"{kind}, {began:.0f} s after the start: {error!r}"[:500])
                return
            self._faults.append((kind, began, samples.now()))
            print(f"{began:6.0f} s  {kind}, {samples.now() - began:.1f} s", flush=True)

    @staticmethod
    async def _sample(plant: Plant, samples: Samples, lookups: Mapping[str, Lookups]) -> None:
        while True:
            await samples.take(plant, lookups)
            await asyncio.sleep(SAMPLE_EVERY_S - samples.now() % SAMPLE_EVERY_S)

    async def _have_steady_routes(self, plant: Plant, expected: Mapping[str, frozenset[str]]) -> bool:
        async with httpx.AsyncClient(timeout=5, trust_env=False) as http:
            for worker in plant.workers:
                for topic, brokers in expected.items():
                    response = await http.get(f"{worker.process.http}/v1/routes/{topic}")
                    if response.status_code != 200:
                        return False
                    if brokers - {group["brokerName"] for group in response.json()["brokerDatas"]}:
                        return False
        return True

    async def _compare_workers(self, plant: Plant) -> None:
        """I4: the fleet goes on changing, so the workers are asked until they are compared at the same version."""
        try:
            await until(lambda: _have_the_same_digest(plant), timeout_s=30, every_s=0.2)
        except AssertionError:
            self._failures.append("I4: the workers had no common version and digest for 30 s")

    def _check(self, plant: Plant, lookups: Mapping[str, Lookups], fleets: Mapping[str, Fleet]) -> None:
        for one in lookups.values():
            self._failures += one.wrong
            planned = self._seconds / 0.1
            # A lookup takes part of its interval, and the worker is down now and then.
            if one.results.total() < 0.8 * planned * 0.9:
                self._failures.append(f"{one.worker.name}: {one.results.total()} lookups of {planned:.0f} planned")
        for name, fleet in fleets.items():
            if fleet.process.poll() is not None:
                self._failures.append(f"the {name} fleet ended: {fleet.log[-2000:]}")
        for worker in plant.workers:
            if worker.process.process.poll() is not None:
                self._failures.append(f"{worker.name} ended")
            self._failures += [f"{worker.name} logged {sign!r}" for sign in SIGNS_OF_A_DEFECT if sign in worker.logs()]


def steady_routes(seed: int) -> dict[str, frozenset[str]]:
    topics = topics_of(STEADY, groups_of(STEADY), seed)
    return {name: frozenset(topic.groups) for name, topic in topics.items()}


def _layout_options(layout: Layout) -> list[str]:
    return ["--brokers", str(layout.brokers), "--topics", str(layout.topics)]


async def _have_the_same_digest(plant: Plant) -> bool:
    async with httpx.AsyncClient(timeout=5, trust_env=False) as http:
        answers = await asyncio.gather(*(http.get(f"{worker.process.http}/v1/status") for worker in plant.workers))
    states = [answer.json() for answer in answers]
    return len({(state["version"], state["digest"], state["history"]) for state in states}) == 1


def _cpu_seconds(plant: Plant) -> dict[str, float]:
    processes = {worker.name: worker.process.process.pid for worker in plant.workers if worker.name != WORKERS[1]}
    processes |= {"tests": os.getpid()}
    return {name: sum(psutil.Process(pid).cpu_times()[:2]) for name, pid in processes.items()}
