"""`store_wait_ms`: a worker that starts before its store is alive, logs what it waits for, and becomes ready later."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from routebook.store.embedded import EmbeddedStore
from tests.support.ports import free_ports
from tests.support.waiting import until


@contextmanager
def worker(store_port: int, admin_port: int, wait_ms: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    flags = {"redis-url": f"redis://127.0.0.1:{store_port}", "admin-port": admin_port, "store-wait-ms": wait_ms}
    flags |= {"remoting-port": 0, "http-port": 0, "bind-address": "127.0.0.1"}
    words = [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "routebook", "serve", *words], stdout=written, stderr=written, cwd=log.parent
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def ask(port: int, path: str) -> httpx.Response | None:
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=5, trust_env=False)
    except httpx.HTTPError:
        return None


def status(port: int, path: str) -> int | None:
    answer = ask(port, path)
    return None if answer is None else answer.status_code


def waiting_lines(folder: Path) -> list[str]:
    return [line for line in (folder / "log").read_text().splitlines() if "store_wait_ms)" in line]


async def test_a_worker_waiting_for_its_store_is_alive_and_becomes_ready_later(tmp_path: Path) -> None:
    store_port, admin = free_ports(2)
    store = EmbeddedStore(tmp_path / "data", port=store_port)
    with worker(store_port, admin, 60_000, tmp_path / "log") as process:
        await until(lambda: status(admin, "/livez") == 200)
        answer = ask(admin, "/readyz")
        assert answer is not None
        assert answer.status_code == 503
        assert "the first complete load" in answer.json()["missing"][0]
        assert status(admin, "/metrics") == 200
        await until(lambda: waiting_lines(tmp_path))
        store.start()
        try:
            await until(lambda: status(admin, "/readyz") == 200)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            store.stop()
    assert len(waiting_lines(tmp_path)) == 1


async def test_a_waiting_worker_can_be_stopped(tmp_path: Path) -> None:
    store_port, admin = free_ports(2)
    with worker(store_port, admin, 60_000, tmp_path / "log") as process:
        await until(lambda: status(admin, "/livez") == 200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


async def test_the_wait_ends_with_the_reason(tmp_path: Path) -> None:
    store_port, admin = free_ports(2)
    with worker(store_port, admin, 100, tmp_path / "log") as process:
        assert process.wait(60) == 3
    (sentence,) = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("Error:")]
    assert f"127.0.0.1:{store_port}" in sentence
