"""A store outside the cluster, with Sentinel: a primary, a replica and three sentinels as processes of this machine."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from routebook.store import keeper
from routebook.store.embedded import find_server
from tests.support.ports import free_port
from tests.support.waiting import wait_until

MASTER: Final = "names"


class SentinelStore:
    def __init__(self, host: str) -> None:
        self._host = host
        self._stack = ExitStack()
        self._folders: dict[int, Path] = {}
        self.sentinels: list[int] = []

    @property
    def url(self) -> str:
        return f"sentinel://{','.join(f'{self._host}:{port}' for port in self.sentinels)}/{MASTER}"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._stack = stack
            primary = self._start("")
            replica = self._start(f"replicaof {self._host} {primary}\n")
            _wait(lambda: self._ask(replica, "ROLE")[3] == "connected", "the replica")
            watch = (
                f"sentinel monitor {MASTER} {self._host} {primary} 2\n"
                f"sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 5000\n"
            )
            self.sentinels = [self._start(watch, "--sentinel") for _ in range(3)]
            _wait(lambda: all(self._is_complete(port) for port in self.sentinels), "the sentinels")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def primary(self) -> int:
        """The primary's port, according to a sentinel."""
        return int(self._ask(self.sentinels[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1])

    def kill_primary(self) -> None:
        process = int((self._folders[self.primary()] / keeper.PROCESS_ID_FILE).read_text())
        os.kill(process, signal.SIGKILL)

    def _start(self, configuration: str, *arguments: str) -> int:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="routebook-sentinel-")))
        port = free_port(self._host)
        data_options = "" if arguments else "save ''\nmaxmemory-policy noeviction\nrepl-diskless-sync-delay 0\n"
        file = folder / "server.conf"
        file.write_text(
            f"port {port}\nbind {self._host}\nprotected-mode no\ndir {folder}\n{data_options}{configuration}"
        )
        # The keeper ends the server when this process ends, for whatever reason.
        command = [sys.executable, "-I", "-S", keeper.__file__, str(folder), "", str(find_server()), str(file)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *arguments], stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        self._stack.enter_context(process)
        self._folders[port] = folder
        _wait(lambda: self._ask(port, "PING"), f"a server on port {port}")
        return port

    def _is_complete(self, port: int) -> bool:
        reply = self._ask(port, "SENTINEL", "MASTER", MASTER)
        fields = dict(zip(reply[::2], reply[1::2], strict=True))
        return int(fields["num-other-sentinels"]) == 2 and int(fields["num-slaves"]) == 1

    def _ask(self, port: int, *words: str) -> Any:
        options: dict[str, Any] = {"protocol": 2, "decode_responses": True, "socket_timeout": 5}
        with redis.Redis(host=self._host, port=port, retry=Retry(NoBackoff(), 0), **options) as server:
            return server.execute_command(*words)


def _wait(condition: Callable[[], object], what: str) -> None:
    def is_true() -> bool:
        try:
            return bool(condition())
        except redis.RedisError:
            return False

    wait_until(is_true, what)
