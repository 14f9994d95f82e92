"""The name service of the tests: one address of a balancer that records frames.

Behind the balancer are two workers of Routebook on one store. With ROUTEBOOK_TEST_NAME_SERVER=apache it is Apache's
name server instead: a test that fails there as well is wrong.
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from routebook.model.identity import Credentials, Identity
from routebook.model.names import Caller
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.identities import put_identity
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet, Status
from tests.conformance.frames import Frame, FrameLog
from tests.conformance.java_processes import START_SECONDS, ApacheNameServer
from tests.runtime.running import Running
from tests.support.ports import lasting_free_port
from tests.support.tcp_balancer import TcpBalancer
from tests.support.waiting import wait_until

VARIABLE = "ROUTEBOOK_TEST_NAME_SERVER"


def is_apache() -> bool:
    return os.environ.get(VARIABLE, "routebook") == "apache"


class NameService(Protocol):
    """The interface that Routebook and Apache's name server have in common here."""

    log: FrameLog
    balancer: TcpBalancer

    @property
    def address(self) -> str: ...

    @property
    def each(self) -> list[str]:
        """The addresses of the name servers behind the balancer."""
        ...


def wait_everywhere(
    names: NameService, condition: Callable[[str], object], what: str, *, within: float = START_SECONDS
) -> None:
    """Waits until the condition is true for each name server behind the balancer."""
    for address in names.each:
        wait_until(partial(condition, address), f"{what} at {address}", timeout_s=within, every_s=0.05)


def await_answers(log: FrameLog, requests: Sequence[Frame]) -> list[Frame]:
    """Waits for the answers to these requests, and returns them in the same order. A request is recorded before it is
    passed on, so its answer may be missing yet. Requests on a connection that was cut have no answer.
    """

    def unanswered() -> list[Frame]:
        return [frame for frame in requests if not log.answer_to(frame)]

    try:
        wait_until(lambda: not unanswered(), "each request is answered")
    except AssertionError as error:
        error.add_note("\n".join(["without an answer:", *map(repr, unanswered())]))
        raise
    return [answer for frame in requests if (answer := log.answer_to(frame))]


class Worker:
    """A `routebook serve` that has the same port after a restart."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.port = lasting_free_port()
        self._folder = folder
        self._arguments = arguments
        self.process = self._new()

    def _new(self) -> Running:
        ports = ("--remoting-port", str(self.port), "--http-port", "0", "--admin-port", "0")
        return Running("serve", *self._arguments, *ports, folder=self._folder, ports=False)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.__exit__(None, None, None)

    def start(self) -> None:
        self.process = self._new()
        self.process.__enter__()
        wait_until(lambda: self.process.get_admin("/readyz").status_code == 200, "the worker is ready")

    def kill(self) -> None:
        self.process.kill()
        self.process.__exit__(None, None, None)

    def restart(self) -> None:
        """Stops it with draining, and starts it again."""
        self.stop()
        self.start()

    def stop(self) -> None:
        self.process.stop(within=60)
        self.process.__exit__(None, None, None)


class RoutebookFleet:
    """Two workers in two processes, on one store."""

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        *,
        flags: Sequence[str] = (),
        workers: int = 2,
        data_dir: Path | None = None,
    ) -> None:
        """`properties` are written to namesrv.conf, as for Apache's name server. `flags` are for `routebook serve`.
        With `data_dir`, the store keeps its data over a restart.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._configuration = folder / "namesrv.conf"
        self._configuration.write_text("".join(f"{name}={value}\n" for name, value in (properties or {}).items()))
        self._stack = ExitStack()
        self.log = FrameLog()
        self.data_dir = data_dir
        self.store = EmbeddedStore(data_dir, port=lasting_free_port())
        self.balancer = TcpBalancer([], observer=self.log)
        self.namespace = f"conformance-{secrets.token_hex(4)}"
        self._folder, self._flags, self._count = folder, flags, workers
        self.workers: list[Worker] = []

    @property
    def address(self) -> str:
        return self.balancer.address

    @property
    def each(self) -> list[str]:
        return [worker.address for worker in self.workers]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.store)
            for number in range(self._count):
                worker = self.new_worker(self._folder / f"worker-{number}", *self._flags)
                self.workers.append(stack.enter_context(worker))
            self.balancer.upstream_ports = tuple(worker.port for worker in self.workers)
            stack.enter_context(self.balancer)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add_identity(self, identity: Identity, credentials: Credentials) -> None:
        asyncio.run(self._add_identity(identity, credentials))

    async def _add_identity(self, identity: Identity, credentials: Credentials) -> None:
        keys = Keys(self.namespace)
        client = StoreClient(StoreUrl.parse(self.store.url), slot_key=keys.meta, timeout_ms=5_000, connections=1)
        await client.open()
        try:
            namespace = Namespace(client, keys, ScriptSet.load())
            outcome, _ = await put_identity(namespace, identity, credentials, caller=Caller("test"))
            assert outcome.status is Status.DONE
        finally:
            await client.close()

    def new_worker(self, folder: Path, *arguments: str) -> Worker:
        """A worker of this fleet that is neither started nor behind the balancer."""
        folder.mkdir()
        store = ("--redis-url", self.store.url, "--namespace", self.namespace)
        return Worker(folder, *store, "-c", str(self._configuration), *arguments)


class ApacheService:
    """Apache's name server behind the same kind of balancer."""

    def __init__(self, classpath: Path, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        self.log = FrameLog()
        self.server = ApacheNameServer(classpath, folder, properties=properties)
        self.balancer = TcpBalancer([self.server.port], observer=self.log)
        self._stack = ExitStack()

    @property
    def address(self) -> str:
        return self.balancer.address

    @property
    def each(self) -> list[str]:
        return [self.server.address]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.server)
            stack.enter_context(self.balancer)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
