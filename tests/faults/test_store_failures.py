"""The store is restarted, unreachable, without scripts or without memory, and clocks are wrong: faults 9 to 17 of
`docs/reliability.md`.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.faults.laboratory import Laboratory, seconds_until, sentinel_store, single_store
from tests.faults.recording import Exchange
from tests.support.figures import Figures
from tests.support.topologies import ask, have_replicated
from tests.support.waiting import until

pytestmark = pytest.mark.slow

LOCAL = ("I1", "I3", "I5", "I6", "I8", "I9")
"""The invariants that every run here must have compared."""


def lookups_since(laboratory: Laboratory, began: float) -> list[Exchange]:
    return [one for one in laboratory.recording.lookups if one.sent >= began]


def registrations_since(laboratory: Laboratory, began: float) -> list[Exchange]:
    return [one for one in laboratory.recording.of_kind("registration") if one.sent >= began]


def report_lookups(laboratory: Laboratory, began: float, figure: Figures) -> None:
    """Requires that every lookup since then was answered with a route."""
    lookups = lookups_since(laboratory, began)
    figure("lookups during and after the fault", len(lookups), at_least=200)
    figure("of these answered with the route", 100 * sum(one.done for one in lookups) / len(lookups), "%", exactly=100)


async def writes_work(laboratory: Laboratory, since: float) -> bool:
    """Whether every broker has been acknowledged a registration that it sent since then."""
    done = {one.subject for one in registrations_since(laboratory, since) if one.done}
    return done >= {broker.name for broker in laboratory.brokers.values() if broker.lives}


async def expiries(laboratory: Laboratory) -> float:
    return sum([await laboratory.metric(one, "routebook_expired_brokers_total") for one in laboratory.running_workers])


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_a_restart_that_keeps_the_data_loses_nothing(
    namespace_name: str, tmp_path: Path, seed: int, figure: Figures, how: signal.Signals
) -> None:
    with single_store(folder=tmp_path / "data", appendfsync="always") as store:
        async with Laboratory(store, namespace_name, tmp_path, seed) as laboratory:
            await laboratory.start(workers=3, brokers=12)
            await laboratory.calm()
            began = time.monotonic()
            assert store.primary
            os.kill(store.primary.process_id, how)
            # Longer than a broker's timeout.
            await asyncio.sleep(laboratory.setting_s("broker_timeout_ms") + 2)
            await asyncio.to_thread(store.primary.stop)
            await asyncio.to_thread(store.primary.start)
            back = time.monotonic()
            figure(
                "writes work again after", await seconds_until(lambda: writes_work(laboratory, back)), "s", at_most=5
            )
            await laboratory.calm(5)
            await laboratory.prove(required=LOCAL)
            report_lookups(laboratory, began, figure)
            figure("expiries", await expiries(laboratory), exactly=0)


async def test_a_restart_without_data_makes_no_known_topic_unknown(laboratory: Laboratory, figure: Figures) -> None:
    await laboratory.start(workers=3, brokers=12)
    await laboratory.calm()
    began, primary = time.monotonic(), laboratory.store.primary
    assert primary
    os.kill(primary.process_id, signal.SIGKILL)
    await asyncio.sleep(2)
    await asyncio.to_thread(primary.stop)
    # The brokers do not register before the store has been empty for some seconds, with workers connected to it.
    for broker in laboratory.brokers.values():
        broker.pause(3)
    await asyncio.to_thread(primary.start)
    back = time.monotonic()
    await until(lambda: writes_work(laboratory, back))
    await until(laboratory.all_are_complete)
    figure("the table is full again after", time.monotonic() - back, "s", at_most=35)
    await laboratory.calm(3)
    await laboratory.prove(required=LOCAL)
    report_lookups(laboratory, began, figure)
    absent = sum(one.absent for one in lookups_since(laboratory, began))
    figure("known topics answered with 17 or 404", absent, exactly=0)
    figure("expiries", await expiries(laboratory), exactly=0)


@pytest.mark.parametrize("how", ["black hole", "refused"])
async def test_an_unreachable_store_fails_no_lookup_and_hangs_no_registration(
    laboratory: Laboratory, figure: Figures, how: str
) -> None:
    await laboratory.start(workers=3, brokers=12)
    await laboratory.calm()
    proxies = [worker.proxy for worker in laboratory.workers if worker.proxy]
    began = time.monotonic()
    for proxy in proxies:
        if how == "refused":
            await proxy.refuse()
        else:
            proxy.black_hole()
    await asyncio.sleep(20)
    ended = time.monotonic()
    for proxy in proxies:
        proxy.cut()
        proxy.heal()
        if how == "refused":
            await proxy.accept()
    back_s = await seconds_until(lambda: writes_work(laboratory, ended))
    await laboratory.calm(5)
    await laboratory.prove(required=("I1", "I5", "I6"))
    report_lookups(laboratory, began, figure)
    during = [one for one in registrations_since(laboratory, began + 1) if one.sent < ended - 3 and one.connection]
    answered = [one for one in during if one.code is not None]
    figure("registrations during the fault", len(during), at_least=20)
    figure("of these without an answer", len(during) - len(answered), exactly=0)
    figure("longest refusal", max(one.took_s for one in answered), "s", at_most=1)
    figure("writes work again after", back_s, "s", at_most=15)
    figure("expiries", await expiries(laboratory), exactly=0)


async def test_lost_scripts_are_invisible_to_users(
    namespace_name: str, tmp_path: Path, seed: int, figure: Figures
) -> None:
    """They are flushed all the time, and the replica that becomes the primary has not run any. Workers may write to the
    old primary for five seconds more. These heartbeats are lost, so brokers have a timeout that allows that.
    """
    with sentinel_store() as store:
        async with Laboratory(store, namespace_name, tmp_path, seed, broker_timeout_ms=12_000) as laboratory:
            await laboratory.start(workers=2, brokers=12)
            trio = store.sentinel
            assert trio
            began, flushed = time.monotonic(), 0
            while time.monotonic() < began + 6:
                flushed += await asyncio.to_thread(ask, trio.primary.port or 0, "SCRIPT", "FLUSH") == "OK"
                await asyncio.sleep(0.05)
            ended = time.monotonic()
            await until(lambda: asyncio.to_thread(have_replicated, trio.primary.port or 0, 2))
            old = trio.names_primary(trio.sentinel_ports[0])
            await asyncio.to_thread(ask, trio.sentinel_ports[0], "SENTINEL", "FAILOVER", "names")
            await until(lambda: trio.names_primary(trio.sentinel_ports[0]) != old)
            moved = time.monotonic()
            await until(lambda: writes_work(laboratory, moved))
            settled = time.monotonic()
            await laboratory.calm(3)
            await laboratory.prove(required=LOCAL)
            figure("SCRIPT FLUSH", flushed, at_least=30)
            written = [one for one in registrations_since(laboratory, began) if one.sent < ended]
            written += registrations_since(laboratory, settled)
            figure("registrations", len(written), at_least=50)
            figure("of these refused", sum(not one.done for one in written), exactly=0)
            report_lookups(laboratory, began, figure)


async def test_a_store_without_memory_refuses_writes_and_no_lookup(laboratory: Laboratory, figure: Figures) -> None:
    laboratory.settings["store_check_interval_ms"] = 1000
    await laboratory.start(workers=2, brokers=12)
    await laboratory.calm()
    primary = laboratory.store.primary
    assert primary
    began = time.monotonic()
    await asyncio.to_thread(ask, primary.port or 0, "CONFIG", "SET", "maxmemory", "1mb")
    await until(lambda: any(one.code not in (0, None) for one in registrations_since(laboratory, began)))
    full = time.monotonic()
    await asyncio.sleep(6)
    refused = [one for one in registrations_since(laboratory, full) if one.answered is not None]

    async def alarms() -> float:
        return sum([await laboratory.metric(one, "routebook_store_alarm") for one in laboratory.workers])

    await until(alarms)
    figure("registrations without memory", len(refused), at_least=20)
    figure("of these answered with another code than 1", sum(one.code != 1 for one in refused), exactly=0)
    figure("workers with an alarm", await alarms(), exactly=len(laboratory.workers))
    await asyncio.to_thread(ask, primary.port or 0, "CONFIG", "SET", "maxmemory", "0")
    freed = time.monotonic()
    figure("writes work again after", await seconds_until(lambda: writes_work(laboratory, freed)), "s", at_most=5)
    await laboratory.calm(3)
    await laboratory.prove(required=("I1", "I5", "I6"))
    report_lookups(laboratory, began, figure)


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long shift(void) { const char *s = getenv("SHIFT_SECONDS"); return s ? atol(s) : 0; }
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, t);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += shift();
    return result;
}
int gettimeofday(struct timeval *t, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""
"""A library that is loaded before the others and shifts the wall clock of a process."""


@pytest.fixture
def shifted_clock(tmp_path: Path) -> Path:
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("there is no C compiler to build a wrong clock with")
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


async def test_workers_with_wrong_clocks_change_nothing(
    laboratory: Laboratory, figure: Figures, shifted_clock: Path
) -> None:
    shifts = (3600, -3600, 0)
    for shift in shifts:
        env = {"LD_PRELOAD": str(shifted_clock), "SHIFT_SECONDS": str(shift)}
        await laboratory.start_worker(env=env)
    shown = []
    for worker in laboratory.workers:
        about = (await asyncio.to_thread(worker.process.get, "/v1/status")).json()["workers"]
        started_ms = next(one["about"]["started_ms"] for one in about if one["worker"] == worker.name)
        shown.append(round((started_ms / 1000 - time.time()) / 3600))
    assert shown == [1, -1, 0], "the clocks are not shifted"
    await laboratory.start(workers=0, brokers=12)
    # Each of the three leads for a while and scans for expired brokers.
    for _ in range(3):
        leader = await laboratory.leader()
        await laboratory.calm(4)
        await laboratory.suspend(leader, laboratory.setting_s("lease_ms") * 2)
    laboratory.brokers["broker-3"].fall_silent()
    await until(laboratory.all_are_complete)
    await laboratory.calm(2)
    await laboratory.prove(required=("I1", "I2", "I4", "I7"))
    leaders = {lease.worker for lease in laboratory.recording.leases}
    figure("workers that led", len(leaders), at_least=2)
    figure("removals besides the silent broker", len(laboratory.recording.removals) - 1, exactly=0)
