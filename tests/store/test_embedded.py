"""The embedded store: it keeps data, a folder has one server, and no server outlives its owner."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from routebook.errors import SettingsError, StoreUnavailableError
from routebook.store.embedded import SERVER_VARIABLE, EmbeddedStore, find_server
from tests.support.topologies import ask
from tests.support.waiting import until


def gone(process_id: int) -> bool:
    try:
        return bool(psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary folders during the test; short, because of the limit for socket paths."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


class Owner:
    """Another process that owns an embedded store, which a test may kill."""

    PROGRAM = """
        import sys, threading, time
        from pathlib import Path
        from routebook.store.embedded import EmbeddedStore

        store = EmbeddedStore(Path(sys.argv[1]) if sys.argv[1] else None, port=0)
        if sys.argv[2] == "thread":
            starter = threading.Thread(target=store.start)
            starter.start()
            starter.join()
        else:
            store.start()
        print(store.process_id, store.port, store.socket_path.parent, flush=True)
        time.sleep(600)
    """

    def __init__(self, data_dir: Path | None, started_by: str = "main") -> None:
        command = [sys.executable, "-c", textwrap.dedent(self.PROGRAM), str(data_dir or ""), started_by]
        environ = os.environ | {"TMPDIR": tempfile.gettempdir()}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
        assert self.process.stdout
        server, port, run_dir = self.process.stdout.readline().split()
        self.server_id, self.port, self.run_dir = int(server), int(port), Path(run_dir)
        parent = psutil.Process(self.server_id).parent()
        assert parent
        self.keeper_id = parent.pid

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture
def own(temporary: Path) -> Iterator[Callable[..., Owner]]:
    owners: list[Owner] = []

    def make(data_dir: Path | None, started_by: str = "main") -> Owner:
        owners.append(Owner(data_dir, started_by))
        return owners[-1]

    yield make
    for owner in owners:
        owner.kill()


def test_data_is_kept_across_restarts(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "data", port=0)
    for turn in range(1, 4):
        with store:
            assert ask(store.port or 0, "INCR", "turns") == turn
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_without_a_folder_nothing_is_left(temporary: Path) -> None:
    store = EmbeddedStore(None, port=0)
    for _ in range(2):
        with store:
            assert ask(store.port or 0, "INCR", "turns") == 1
            server = store.process_id
            assert list(temporary.iterdir())
        assert gone(server)
    assert list(temporary.iterdir()) == []


def test_without_a_port_only_a_private_socket_listens(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path) as store:
        assert store.url == f"unix://{store.socket_path}"
        assert store.socket_path.parent.stat().st_mode & 0o777 == 0o700
        assert psutil.Process(store.process_id).net_connections("inet") == []


def test_a_folder_in_use_is_refused_with_advice(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path):
        with pytest.raises(SettingsError) as refusal:
            EmbeddedStore(tmp_path).start()
        assert str(tmp_path) in refusal.value.message
        assert str(os.getpid()) in refusal.value.message
        assert "--data-dir" in refusal.value.advice
    EmbeddedStore(tmp_path).__enter__().stop()


@pytest.mark.parametrize("started_by", ["main", "thread"])
async def test_a_server_ends_when_its_owner_is_killed(own: Callable[..., Owner], started_by: str) -> None:
    """When a thread started it, the end of that thread must not have ended the server before."""
    owner = own(None, started_by)
    assert ask(owner.port, "PING")
    owner.kill()
    await until(lambda: gone(owner.server_id) and gone(owner.keeper_id))
    await until(lambda: not owner.run_dir.exists())


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's parent-death signal")
async def test_a_server_ends_when_its_keeper_is_killed(own: Callable[..., Owner]) -> None:
    owner = own(None)
    os.kill(owner.keeper_id, signal.SIGKILL)
    await until(lambda: gone(owner.server_id))


async def test_signals_to_the_keeper_do_not_end_the_store(own: Callable[..., Owner]) -> None:
    """A terminal sends Ctrl-C to all processes, and the owner still writes while it stops."""
    owner = own(None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(owner.keeper_id, number)
    assert ask(owner.port, "PING")
    assert os.getsid(owner.server_id) != os.getsid(0)


async def test_the_folder_of_a_killed_owner_can_be_used_at_once(own: Callable[..., Owner], tmp_path: Path) -> None:
    for turn in range(1, 4):
        owner = own(tmp_path)
        assert ask(owner.port, "INCR", "turns") == turn
        owner.kill()


async def test_written_data_survives_the_end_of_the_owner(own: Callable[..., Owner], tmp_path: Path) -> None:
    owner = own(tmp_path)
    for number in range(200):
        ask(owner.port, "RPUSH", "list", number)
    owner.kill()
    with EmbeddedStore(tmp_path, port=0) as store:
        assert ask(store.port or 0, "LLEN", "list") == 200


def test_a_suspended_server_is_ended_too() -> None:
    store = EmbeddedStore(None)
    store.start()
    server = store.process_id
    os.kill(server, signal.SIGSTOP)
    store.stop()
    assert gone(server)


async def test_the_death_of_a_server_is_noticed_and_it_can_be_started_again(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path, port=0)
    store.start()
    port = store.port
    os.kill(store.process_id, signal.SIGKILL)
    await until(lambda: not store.running)
    store.stop()
    store.start()
    assert store.port == port
    assert ask(port or 0, "PING")
    store.stop()


def test_a_failed_start_reports_the_reason(temporary: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="no-such-option"):
        EmbeddedStore(None, options={"no-such-option": "1"}).start()
    assert list(temporary.iterdir()) == []


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be created"):
        EmbeddedStore(tmp_path / "file" / "data").start()


def test_many_stores_can_start_at_once(tmp_path: Path) -> None:
    stores = [EmbeddedStore(tmp_path / str(number)) for number in range(10)]
    threads = [threading.Thread(target=store.start) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(store.running for store in stores)
    for store in stores:
        store.stop()


def test_a_named_server_comes_before_the_bundled_one_and_the_path(tmp_path: Path) -> None:
    named = tmp_path / "my-server"
    named.write_text("#!/bin/sh\n")
    named.chmod(0o755)
    assert find_server({SERVER_VARIABLE: str(named)}) == named
    with pytest.raises(SettingsError, match=SERVER_VARIABLE):
        find_server({SERVER_VARIABLE: str(tmp_path / "absent")})
    assert find_server({}).name in ("valkey-server", "redis-server")
