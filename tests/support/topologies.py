"""Sentinel and Cluster as processes on this machine: ready in a few seconds, and real enough to be killed."""

import os
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from routebook.store import keeper
from routebook.store.embedded import EmbeddedStore, find_server
from tests.support.ports import free_port, lasting_free_port
from tests.support.waiting import wait_until

MASTER = "names"


def ask(port: int, *words: str | int) -> Any:
    """Sends one command to one server over a new connection."""
    with _connected(port) as server:
        return server.execute_command(*words)


def have_replicated(port: int, replicas: int) -> bool:
    """Whether that many replicas have what this primary had when it was asked. WAIT alone is about the writes of its
    own connection, so this writes something first.
    """
    with _connected(port) as server:
        server.set("replication-probe", 1, px=1000)
        return int(server.execute_command("WAIT", replicas, 1000)) >= replicas


def _connected(port: int) -> redis.Redis:
    """Over one connection, without repeating anything."""
    options: dict[str, Any] = {"protocol": 2, "decode_responses": True, "socket_timeout": 5}
    options |= {"single_connection_client": True, "retry": Retry(NoBackoff(), 0)}
    return redis.Redis(host="127.0.0.1", port=port, **options)


def kill(store: EmbeddedStore) -> None:
    """Kills the server without notice, as when its machine fails."""
    os.kill(store.process_id, signal.SIGKILL)


def _wait_for(condition: Callable[[], object], what: str) -> None:
    def is_true() -> bool:
        try:
            return bool(condition())
        except redis.RedisError:
            return False

    wait_until(is_true, what)


class _Topology(ABC):
    """Starts its servers in order and stops them in reverse order, also when the start fails halfway."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._stack = stack
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @abstractmethod
    def _start(self) -> None: ...


class SentinelTrio(_Topology):
    """A primary, one or more replicas, and three sentinels that fail over after half a second of silence."""

    def __init__(self, options: dict[str, str] | None = None, *, replicas: int = 1, server: Path | None = None) -> None:
        super().__init__()
        options = {"repl-diskless-sync-delay": "0"} | (options or {})
        self._server = server
        stores = [
            EmbeddedStore(None, port=lasting_free_port(), options=options, server=server) for _ in range(replicas + 1)
        ]
        self.primary, *self.replicas = stores
        self.replica = self.replicas[0]
        self.sentinel_ports: list[int] = []

    @property
    def url(self) -> str:
        return f"sentinel://{','.join(f'127.0.0.1:{port}' for port in self.sentinel_ports)}/{MASTER}"

    def _start(self) -> None:
        for store in (self.primary, *self.replicas):
            self._stack.enter_context(store)
        assert self.primary.port
        for replica in self.replicas:
            ask(replica.port or 0, "REPLICAOF", "127.0.0.1", self.primary.port)
        self.sentinel_ports = [self._start_sentinel(self.primary.port) for _ in range(3)]
        _wait_for(self._complete, "the sentinels know each other and the replicas")

    @staticmethod
    def names_primary(sentinel_port: int) -> int:
        """The port of the primary, as this sentinel sees it."""
        return int(ask(sentinel_port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1])

    def promote_without_the_primary(self) -> None:
        """Makes the replica a primary and all sentinels name it, as a failover does while the old primary is cut off
        from both: nothing tells the old one, and its connections stay open.
        """
        assert self.replica.port
        for port in self.sentinel_ports:
            ask(port, "SENTINEL", "REMOVE", MASTER)
        ask(self.replica.port, "REPLICAOF", "NO", "ONE")
        for port in self.sentinel_ports:
            ask(port, "SENTINEL", "MONITOR", MASTER, "127.0.0.1", self.replica.port, 2)

    def _start_sentinel(self, primary_port: int) -> int:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="routebook-sentinel-")))
        port = free_port()
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {primary_port} 2\n"
            f"sentinel down-after-milliseconds {MASTER} 500\nsentinel failover-timeout {MASTER} 3000\n"
        )
        arguments = [str(folder), "", str(self._server or find_server()), str(config), "--sentinel"]
        command = [sys.executable, "-I", "-S", keeper.__file__, *arguments]
        with (folder / "log").open("wb") as log:
            sentinel = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        self._stack.enter_context(sentinel)
        _wait_for(lambda: ask(port, "PING"), f"the sentinel at port {port} answers")
        return port

    def _complete(self) -> bool:
        return all(self._knows_the_others(port) for port in self.sentinel_ports)

    def _knows_the_others(self, port: int) -> bool:
        reply = ask(port, "SENTINEL", "MASTER", MASTER)
        state = dict(zip(reply[::2], reply[1::2], strict=True))
        return int(state["num-other-sentinels"]) == 2 and int(state["num-slaves"]) == len(self.replicas)


class ClusterTrio(_Topology):
    """Three nodes without replicas, each with a third of the slots."""

    SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))

    def __init__(self, *, server: Path | None = None) -> None:
        super().__init__()
        self.nodes = [
            EmbeddedStore(None, port=lasting_free_port(), options=self._options(), server=server) for _ in self.SLOTS
        ]

    @staticmethod
    def _options() -> dict[str, str]:
        return {
            "cluster-enabled": "yes",
            "cluster-port": str(free_port()),
            "cluster-node-timeout": "1000",
            "cluster-require-full-coverage": "no",
        }

    @property
    def ports(self) -> list[int]:
        return [node.port or 0 for node in self.nodes]

    @property
    def url(self) -> str:
        return f"cluster://{','.join(f'127.0.0.1:{port}' for port in self.ports)}"

    def _start(self) -> None:
        for number, (node, (first, last)) in enumerate(zip(self.nodes, self.SLOTS, strict=True), 1):
            self._stack.enter_context(node)
            assert node.port
            ask(node.port, "CLUSTER", "ADDSLOTSRANGE", first, last)
            ask(node.port, "CLUSTER", "SET-CONFIG-EPOCH", number)
        for node, port in list(zip(self.nodes, self.ports, strict=True))[1:]:
            bus = int(node.options["cluster-port"])
            ask(self.ports[0], "CLUSTER", "MEET", "127.0.0.1", port, bus)
        _wait_for(lambda: all(map(self._complete, self.ports)), "the nodes know each other")

    @staticmethod
    def _complete(port: int) -> bool:
        info = ask(port, "CLUSTER", "INFO")
        return "cluster_state:ok" in info and "cluster_known_nodes:3" in info

    def owner_of(self, slot: int) -> int:
        """The port of the node that serves the slot."""
        for first, last, primary, *_ in ask(self.ports[0], "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return int(primary[1])
        raise AssertionError(f"no node serves slot {slot}")

    def move_slot(self, slot: int) -> None:
        """Moves a slot with its keys to another node, as `redis-cli --cluster reshard` does."""
        source = self.owner_of(slot)
        target = next(port for port in self.ports if port != source)
        source_id, target_id = (str(ask(port, "CLUSTER", "MYID")) for port in (source, target))
        ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        while keys := ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 100):
            ask(source, "MIGRATE", "127.0.0.1", target, "", 0, 5000, "KEYS", *keys)
        for port in (target, source):
            ask(port, "CLUSTER", "SETSLOT", slot, "NODE", target_id)
