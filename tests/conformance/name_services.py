"""The name service that peers are given: always one address, a balancer's, that keeps what it saw.

Behind it are two workers of Routebook, two processes on one store; or, with ROUTEBOOK_TEST_NAME_SERVER=apache,
Apache's own name server: a test that fails there too is wrong.
"""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from routebook.store.embedded import EmbeddedStore
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
    """What every test may use, whichever it is."""

    log: FrameLog
    balancer: TcpBalancer

    @property
    def address(self) -> str: ...

    @property
    def each(self) -> list[str]:
        """The addresses behind the balancer."""
        ...


def everywhere(
    names: NameService, condition: Callable[[str], object], what: str, *, within: float = START_SECONDS
) -> None:
    """Waits until it holds of each address behind the balancer."""
    for address in names.each:
        wait_until(partial(condition, address), f"{what} at {address}", timeout_s=within, every_s=0.05)


def await_answers(log: FrameLog, requests: Sequence[Frame]) -> list[Frame]:
    """One for each of them, in their order. A request is logged before it is passed on: the answer to one that was
    sent just now comes later. Not for requests on a connection that has been cut.
    """

    def unanswered() -> list[Frame]:
        return [frame for frame in requests if not log.answer_to(frame)]

    def all_answered() -> bool:
        return not unanswered()

    try:
        wait_until(all_answered, "each request is answered")
    except AssertionError as error:
        error.add_note("\n".join(["without an answer:", *map(repr, unanswered())]))
        raise
    return [answer for frame in requests if (answer := log.answer_to(frame))]


class Worker:
    """One `routebook serve` with a port that it keeps when it is started again."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.port = lasting_free_port()
        self._folder = folder
        self._words = words
        self.process = self._new()

    def _new(self) -> Running:
        ports = ("--remoting-port", str(self.port), "--http-port", "0", "--admin-port", "0")
        return Running("serve", *self._words, *ports, folder=self._folder, ports=False)

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
        wait_until(lambda: self.process.ask_admin("/readyz").status_code == 200, "the worker is ready")

    def kill(self) -> None:
        self.process.kill()
        self.process.__exit__(None, None, None)

    def restart(self) -> None:
        """Orderly: it drains."""
        self.stop()
        self.start()

    def stop(self) -> None:
        self.process.stop(within=60)
        self.process.__exit__(None, None, None)


class RoutebookFleet:
    """Two workers, two processes, one store."""

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        *,
        flags: Sequence[str] = (),
        workers: int = 2,
        data_dir: Path | None = None,
    ) -> None:
        """`properties`: of namesrv.conf, as Apache's. `flags`: of `routebook serve`. `data_dir`: a store that keeps
        its data when it restarts.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._configuration = folder / "namesrv.conf"
        self._configuration.write_text("".join(f"{name}={value}\n" for name, value in (properties or {}).items()))
        self._stack = ExitStack()
        self.log = FrameLog()
        self.data_dir = data_dir
        self.store = EmbeddedStore(data_dir, port=0)
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

    def new_worker(self, folder: Path, *words: str) -> Worker:
        """Not started. Of this fleet, not behind its balancer."""
        folder.mkdir()
        store = ("--redis-url", self.store.url, "--namespace", self.namespace)
        return Worker(folder, *store, "-c", str(self._configuration), *words)


class ApacheAlone:
    """Apache's name server behind the same balancer."""

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
