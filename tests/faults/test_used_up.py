"""Row 28: the store's disk is full, or a worker has no file descriptor left. The service reports it and recovers."""

import asyncio
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from routebook.store.embedded import EmbeddedStore
from tests.faults.laboratory import Laboratory, seconds_until, single_store
from tests.faults.traffic import Worker
from tests.support.figures import Figures
from tests.support.peers import Peer
from tests.support.topologies import ask
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(psutil.Process, "rlimit"), reason="limits of other processes need Linux"),
]


DISK_BYTES = 32 << 20


class FullDisk:
    """A small disk of its own (tmpfs) under the store's append-only file, filled by another file."""

    how = "a full tmpfs (ENOSPC)"

    def __init__(self, store: EmbeddedStore, folder: Path) -> None:
        self._filling = folder / "filling"

    def fill(self) -> None:
        with suppress(OSError), self._filling.open("wb", buffering=0) as file:
            while file.write(bytes(4096)) == 4096:
                pass

    def free(self) -> None:
        self._filling.unlink()


class LimitedFile:
    """Where nothing may be mounted: the append-only file may not grow. Writes to it fail with EFBIG instead of ENOSPC,
    and the server treats both alike.
    """

    how = "a limit on the file's size (EFBIG), because a tmpfs may not be mounted here"

    def __init__(self, store: EmbeddedStore, folder: Path) -> None:
        self._server = psutil.Process(store.process_id)
        self._folder = folder

    def fill(self) -> None:
        largest = max(path.stat().st_size for path in self._folder.rglob("*.aof*") if path.is_file())
        self._server.rlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))

    def free(self) -> None:
        self._server.rlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextmanager
def small_disk(folder: Path) -> Iterator[type[FullDisk] | type[LimitedFile]]:
    """Mounts a small disk there if this process may."""
    folder.mkdir()
    command = ("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder))
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        yield LimitedFile
        return
    try:
        yield FullDisk
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True)


async def _put(worker: Worker) -> tuple[int, str]:
    answer = await asyncio.to_thread(worker.process.put, "/v1/kv/probe/at", {"value": f"{time.monotonic()}"})
    return answer.status_code, answer.text


async def _is_refused(worker: Worker) -> bool:
    return (await _put(worker))[0] == 503


async def _is_written(worker: Worker) -> bool:
    return (await _put(worker))[0] == 200


async def _has_disk_alarm(worker: Worker) -> bool:
    text = (await asyncio.to_thread(worker.process.get_admin, "/metrics")).text
    return 'routebook_store_alarm{alarm="disk"} 1.0' in text


async def _failed_lookups(laboratory: Laboratory) -> int:
    return sum(one.code not in (0, 200) for one in laboratory.recording.lookups if one.answered is not None) + sum(
        client.failed for client in laboratory.clients
    )


async def test_a_full_disk_under_the_append_only_file_refuses_writes_and_nothing_else(
    namespace_name: str, tmp_path: Path, seed: int, figure: Figures
) -> None:
    with small_disk(tmp_path / "store") as kind, single_store(folder=tmp_path / "store") as store:
        assert store.primary
        disk = kind(store.primary, tmp_path / "store")
        figure.fact("the disk is full by", disk.how)
        settings = {"store_check_interval_ms": 1000}
        async with Laboratory(store, namespace_name, tmp_path, seed, **settings) as laboratory:
            await laboratory.start(workers=2, brokers=6)
            await laboratory.calm()
            worker = laboratory.workers[0]
            disk.fill()
            laboratory.mark("the disk is full")
            figure("writes are refused after", await seconds_until(partial(_is_refused, worker)), "s", at_most=5)
            logged_s = await seconds_until(lambda: "The store cannot write to its disk" in worker.process.log)
            figure("the log names the disk after", logged_s, "s", at_most=5)
            reported_s = await seconds_until(partial(_has_disk_alarm, worker))
            figure("the alarm about the disk is raised after", reported_s, "s", at_most=5)
            # Longer than the timeout of the brokers, whose heartbeats are refused.
            await asyncio.sleep(float(laboratory.settings["broker_timeout_ms"]) / 1000 + 3)
            status = (await asyncio.to_thread(worker.process.get, "/v1/status")).json()
            assert "disk" in status["store_alarms"]
            disk.free()
            laboratory.mark("the disk has room")
            figure("writes work again after", await seconds_until(partial(_is_written, worker)), "s", at_most=5)
            await until(lambda: _no_alarm(laboratory))
            await until(laboratory.all_are_complete)
            figure("lookups that failed", await _failed_lookups(laboratory), exactly=0)
            figure("brokers removed", await _removals(laboratory), exactly=0)
            await laboratory.prove(required=("I1", "I4", "I5", "I6", "I9"))


async def _no_alarm(laboratory: Laboratory) -> bool:
    return not any([await _has_disk_alarm(worker) for worker in laboratory.running_workers])


async def _removals(laboratory: Laboratory) -> int:
    assert laboratory.store.primary
    key = laboratory.namespace.keys.changes
    entries = await asyncio.to_thread(ask, laboratory.store.primary.port or 0, "XRANGE", key, "-", "+")
    return sum('"kind":"broker-removed"' in str(entry) for entry in entries)


async def test_a_worker_without_file_descriptors_closes_new_connections_and_serves_the_others(
    namespace_name: str, tmp_path: Path, seed: int, figure: Figures
) -> None:
    with single_store() as store:
        async with Laboratory(store, namespace_name, tmp_path, seed) as laboratory:
            await laboratory.start(workers=2, brokers=6)
            await laboratory.calm()
            worker = laboratory.workers[0]
            process = psutil.Process(worker.process.process.pid)
            limit = process.rlimit(resource.RLIMIT_NOFILE)
            process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds() + 20, limit[1]))
            laboratory.mark("no file descriptors left")
            flood = [await Peer.connect(worker.remoting) for _ in range(200)]
            logged_s = await seconds_until(lambda: "cannot accept connections" in worker.process.log)
            figure("the log reports it after", logged_s, "s", at_most=5)
            await laboratory.calm(5)
            process.rlimit(resource.RLIMIT_NOFILE, limit)
            for peer in flood:
                peer.abort()
            taken_s = await seconds_until(partial(_answers, worker))
            figure("new connections are accepted again after", taken_s, "s", at_most=5)
            figure("refused connections counted", await _refused_connections(worker), at_least=100)
            figure(
                "lookups without an answer, also when repeated", sum(c.failed for c in laboratory.clients), exactly=0
            )
            await laboratory.prove(required=("I1", "I4", "I5", "I6", "I8", "I9"))


async def _refused_connections(worker: Worker) -> float:
    text = (await asyncio.to_thread(worker.process.get_admin, "/metrics")).text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if 'reason="descriptors"' in line)


async def _answers(worker: Worker) -> bool:
    try:
        async with await Peer.connect(worker.remoting) as peer, asyncio.timeout(2):
            return (await peer.ask(105, {"topic": "all"})).code == 0
    except (OSError, EOFError, TimeoutError):
        return False
