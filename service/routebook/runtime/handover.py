"""The link between a supervisor and a worker process: settings and sockets at the start, and a shared end.

The supervisor writes one line of JSON to the worker's standard input and keeps the pipe open. It uses standard input
rather than arguments or variables because the settings contain secrets. It sends the settings that it read itself,
because a file that changes must not give two workers of one service different settings.

A worker process must not outlive its supervisor, not even one killed with SIGKILL. Two mechanisms ensure that: the end
of standard input (on every system, but a stuck interpreter does not read it) and Linux's parent-death signal (which
the kernel always delivers).
"""

import asyncio
import contextlib
import ctypes
import io
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from routebook.runtime.ports import PublicPorts
from routebook.runtime.stopping import Stop
from routebook.settings import Loaded, Origin, Settings, catalogue


@dataclass(frozen=True, slots=True)
class Handover:
    number: int
    remoting_socket: int
    """File descriptors of the listening sockets, inherited."""
    http_socket: int
    admin_socket: str
    """Path of the unix socket on which to serve health and metrics to the supervisor."""
    values: dict[str, str]
    origins: dict[str, str]
    kept_properties: dict[str, str]
    """They have no effect, but every worker returns them to request 319."""
    file: str

    @classmethod
    def of(cls, loaded: Loaded, *, number: int, public: PublicPorts, admin_socket: Path) -> "Handover":
        values = {name: one.text(getattr(loaded.settings, name)) for name, one in catalogue.all_settings().items()}
        origins = {name: str(origin) for name, origin in loaded.origins.items()}
        kept = dict(loaded.kept_properties)
        remoting, http = public.remoting.fileno(), public.http.fileno()
        return cls(number, remoting, http, str(admin_socket), values, origins, kept, loaded.file)

    def ports(self) -> PublicPorts:
        return PublicPorts(socket.socket(fileno=self.remoting_socket), socket.socket(fileno=self.http_socket))

    def loaded(self) -> Loaded:
        settings = Settings(**{name: catalogue.find(name).parse(text) for name, text in self.values.items()})
        origins = {name: Origin(origin) for name, origin in self.origins.items()}
        return Loaded(settings, origins, self.kept_properties, file=self.file)

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "Handover":
        return cls(**json.loads(line))


_PR_SET_PDEATHSIG = 1
PARENT_DIED = signal.SIGUSR2
"""Not SIGTERM: the kernel sends one for each ending thread of the parent, and a second SIGTERM forces the stop."""
GRACE_SECONDS = 5.0
STOP = b"stop\n"
FORCE = b"force\n"
"""Lines sent by the supervisor. They are not signals, because systemd signals every process of a service by itself; one
more signal from the supervisor would count as the second, which forces the stop.
"""
_POLL_SECONDS = 0.3


def die_with_parent(parent: int) -> None:
    """Call it as early as possible. The supervisor forks from its main thread, which lives as long as the process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, PARENT_DIED)
    if os.getppid() != parent:
        # The parent died before the signal was set up.
        os._exit(1)


def follow_parent(standard_input: io.FileIO, stop: Stop, drain_ms: int) -> None:
    """Stops on the supervisor's command and when the supervisor has ended; in the end from a thread, so that a blocked
    event loop cannot prevent it.
    """
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(PARENT_DIED, stop.ask, "the supervisor has ended")

    def call_in_loop(callback: Callable[[str], None], reason: str) -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended, so the process is ending.
            loop.call_soon_threadsafe(callback, reason)

    def follow() -> None:
        for line in standard_input:
            if line == STOP:
                call_in_loop(stop.ask, "by the supervisor")
            elif line == FORCE:
                call_in_loop(stop.force, "by the supervisor")
        call_in_loop(stop.ask, "the supervisor has ended")
        time.sleep(drain_ms / 1000 + GRACE_SECONDS)
        os._exit(1)

    threading.Thread(target=follow, name="parent-watch", daemon=True).start()


async def stop_when_orphaned(stop: Stop) -> None:
    """For `make up`: make forwards Ctrl-C, but a killed make would leave its child behind."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 the end of a process that is not our child sets no event
        await asyncio.sleep(_POLL_SECONDS)
    stop.ask("the parent process has ended")
