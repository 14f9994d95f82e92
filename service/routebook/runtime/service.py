"""One service on this machine: its ports, and one worker in this process or several in processes of their own."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import uvloop

from routebook import __version__
from routebook.observability.logs import start_logs
from routebook.runtime.ports import PublicPorts, address_of, allow_connections, http_address, listen, port_of
from routebook.runtime.stopping import Stop
from routebook.settings import LiveSettings, Loaded
from routebook.store.checks import check_store
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.keys import Keys

_log = logging.getLogger(__name__)

Announce = Callable[["Service"], None]
Watch = Callable[[Stop], Coroutine[Any, Any, None]]
"""Runs beside the service and may stop it."""


@dataclass(frozen=True, slots=True)
class Service:
    """A running service. Its ports are the real ones, even when a setting is 0."""

    loaded: Loaded
    public: PublicPorts
    admin: socket.socket

    @property
    def remoting_address(self) -> str:
        return address_of(self.public.remoting)

    @property
    def http_address(self) -> str:
        return http_address(self.public.http, is_secure=self.loaded.settings.tls_mode == "enforcing")

    @property
    def admin_address(self) -> str:
        return http_address(self.admin)

    @classmethod
    def listening(cls, loaded: Loaded) -> "Service":
        """Binds the ports. The settings then contain the real port numbers."""
        settings = loaded.settings
        with contextlib.ExitStack() as until_all_are_bound:
            remoting = listen(settings.bind_address, settings.remoting_port, "remoting_port", "bind_address")
            until_all_are_bound.callback(remoting.close)
            http = listen(settings.bind_address, settings.http_port, "http_port", "bind_address")
            until_all_are_bound.callback(http.close)
            admin = listen(settings.admin_host, settings.admin_port, "admin_port", "admin_host")
            until_all_are_bound.pop_all()
        bound = {"remoting_port": port_of(remoting), "http_port": port_of(http), "admin_port": port_of(admin)}
        return cls(replace(loaded, settings=settings.model_copy(update=bound)), PublicPorts(remoting, http), admin)


def run_service(loaded: Loaded, announce: Announce, watches: Sequence[Watch] = ()) -> int:
    """Runs until a signal arrives or a watch requests a stop. Returns the exit code."""
    service = Service.listening(loaded)
    live = LiveSettings(service.loaded)
    start_logs(live)
    _log_start(live)
    allow_connections(service.loaded.settings.max_connections)
    if service.loaded.settings.workers > 1:
        return asyncio.run(_run_workers(service, announce, watches))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run_worker(service, live, announce, watches))


async def _run_worker(service: Service, live: LiveSettings, announce: Announce, watches: Sequence[Watch]) -> int:
    from routebook.runtime.worker import Worker  # noqa: PLC0415 takes half a second; a supervisor does not need it

    stop = Stop()
    with stop.on_signals(), _running(watches, stop):
        await Worker(live, service.public, service.admin, stop).run(lambda: announce(service))
    return 0


async def _run_workers(service: Service, announce: Announce, watches: Sequence[Watch]) -> int:
    from routebook.runtime.supervisor import Supervisor  # noqa: PLC0415 not needed for one worker

    stop = Stop()
    with stop.on_signals(), _running(watches, stop):
        await _check_store_first(service.loaded)
        supervisor = Supervisor(service.loaded, service.public, service.admin, stop)
        return await supervisor.run(lambda: announce(service))


@contextlib.contextmanager
def _running(watches: Sequence[Watch], stop: Stop) -> Iterator[None]:
    tasks = [asyncio.ensure_future(watch(stop)) for watch in watches]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def _check_store_first(loaded: Loaded) -> None:
    """Checked here rather than in every worker, so that an unreachable store is reported once."""
    settings = loaded.settings
    client = StoreClient(
        StoreUrl.parse(settings.redis_url),
        slot_key=Keys(settings.namespace).meta,
        timeout_ms=settings.store_timeout_ms,
    )
    try:
        await client.open()
        await check_store(client, settings.namespace)
    finally:
        await client.close()


def _log_start(live: LiveSettings) -> None:
    rows = live.describe(masked=True)
    chosen = [name for name, _, origin in rows if origin != "default"]
    _log.info("Routebook %s starts; set: %s. -p prints all settings.", __version__, ", ".join(chosen) or "nothing")
    shown = {name: value if origin == "default" else f"{value} ({origin})" for name, value, origin in rows}
    _log.debug("Effective settings:", extra=shown)
    for warning in live.loaded.warnings:
        _log.warning(warning)
