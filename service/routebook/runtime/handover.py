"""What a supervisor tells a worker process: one line of JSON on its standard input, which then stays open.

By standard input and not by arguments or variables, because secrets are in it; and the settings as the
supervisor read them, because a file that changes must not give two workers of one service different settings.
The end of the input means that the supervisor is gone.

A worker process must not outlive its supervisor, not even one that was killed with -9.

Two ways at once, as neither is enough: the end of standard input (any system; but a stuck interpreter does
not read it), and Linux's parent-death signal (which the kernel delivers whatever we do).
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
    """Where to serve health and metrics for the supervisor."""
    values: dict[str, str]
    origins: dict[str, str]
    kept_properties: dict[str, str]
    """Without effect, but every worker is asked for them (319)."""
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
"""Not SIGTERM: the kernel sends it once for each dying thread of the parent, and a second SIGTERM would force."""
GRACE_SECONDS = 5.0
STOP = b"stop\n"
FORCE = b"force\n"
"""Lines of the supervisor. Words and not signals: systemd signals every process of a service by itself, and a
worker that then got one more from its supervisor would take it for the second, which forces.
"""
_LOOK_SECONDS = 0.3


def die_with_parent(parent: int) -> None:
    """As early as possible. The supervisor forks from its main thread, whose end is the process's."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, PARENT_DIED)
    if os.getppid() != parent:
        # It died before we asked to be told.
        os._exit(1)


def follow_parent(standard_input: io.FileIO, stop: Stop, drain_ms: int) -> None:
    """Stops when it says so, and when it is gone; then in any case, from a thread that no blocked loop can hold."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(PARENT_DIED, stop.ask, "the supervisor is gone")

    def tell(callback: Callable[[str], None], reason: str) -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended: so do we.
            loop.call_soon_threadsafe(callback, reason)

    def follow() -> None:
        for line in standard_input:
            if line == STOP:
                tell(stop.ask, "the supervisor says so")
            elif line == FORCE:
                tell(stop.force, "by the supervisor")
        tell(stop.ask, "the supervisor is gone")
        time.sleep(drain_ms / 1000 + GRACE_SECONDS)
        os._exit(1)

    threading.Thread(target=follow, name="parent-watch", daemon=True).start()


async def stop_when_orphaned(stop: Stop) -> None:
    """For `make up`: make passes Ctrl-C on, but a make that is killed would leave its child behind."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 the end of a process that is not our child sets no event
        await asyncio.sleep(_LOOK_SECONDS)
    stop.ask("the process that started this one is gone")
