"""One worker: builds everything that lives as long as it, starts it in this order and stops it in the reverse order.

    admin port -> store -> its check -> the route table -> replica complete -> presence, leader, … -> public ports

A stop closes the public ports first, so that no request meets a half-stopped worker; then gives up the leadership, so
that the next leader need not wait for the lease to end; then closes the store.

With `--workers N`, each worker has a process of its own (`run_worker_process`). Its supervisor sends commands over
standard input (`handover`).
"""

import asyncio
import gc
import io
import logging
import os
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import uvloop

from routebook import __version__
from routebook.background.change_log import ChangeLog, write_refusals, write_refusals_forever
from routebook.background.kv_file import import_kv_file
from routebook.background.leader import Leader
from routebook.background.presence import Presence
from routebook.background.restoring import Restoring
from routebook.background.self_check import SelfCheck, StoreAlarms
from routebook.errors import RoutebookError, StoreUnavailableError
from routebook.http_api.app import create_admin_app, create_app
from routebook.http_api.serving import AcceptorOptions, HeaderLimits, http_server
from routebook.listeners.peers import PeerLimits, Peers
from routebook.listeners.tls import ServerTls, TlsOptions
from routebook.observability.logs import start_logs, suppressed_lines
from routebook.observability.metrics import Metrics, ReplicaFigures
from routebook.observability.probes import Pace, memory_limit_bytes
from routebook.registry.identities import OPEN_ACCESS, OPENNESSES, open_to_all
from routebook.registry.registry import Registry
from routebook.remoting.server import RemotingServer
from routebook.replica.replica import Replica
from routebook.runtime.exits import exit_code_of
from routebook.runtime.handover import Handover, follow_parent
from routebook.runtime.ports import PublicPorts, listen_privately
from routebook.runtime.stopping import Serving, Stop
from routebook.runtime.supervisor import READY
from routebook.settings import LiveSettings, Origin, Settings
from routebook.store.checks import check_store
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.keys import Keys
from routebook.store.namespace import SCHEMA, Namespace, ScriptSet
from routebook.store.workers import open_namespace

_log = logging.getLogger(__name__)

LOAD_TIMEOUT_MS = 120_000
"""Deadline of the first load. A table of millions of entries takes seconds; a store that never answers must end the
start.
"""
STORE_PAUSE_SECONDS = 0.5
"""Pause between two attempts to reach the store at the start."""
STORE_STOP_SECONDS = 3.0
ADMIN_DRAIN_SECONDS = 1.0


class Worker:
    def __init__(self, live: LiveSettings, public: PublicPorts, admin: socket.socket, stop: Stop) -> None:
        settings = live.current
        self.name = f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(3)}"
        self._live = live
        self._stop = stop
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failure: BaseException | None = None
        keys = Keys(settings.namespace)
        self._client = StoreClient(
            StoreUrl.parse(settings.redis_url),
            slot_key=keys.meta,
            timeout_ms=settings.store_timeout_ms,
            connections=settings.store_connections,
        )
        self._metrics = Metrics()
        self._namespace = Namespace(self._client, keys, ScriptSet.load(), on_run=self._metrics.script_run)
        self._replica = Replica(self._namespace, live)
        self.registry = Registry(self._namespace, self._replica, live, worker=self.name, metrics=self._metrics)
        self._replica.listen(ChangeLog(live.masked, self.registry.audit, self.name).log)
        health = self.registry.store_health
        self._presence = Presence(
            self._namespace,
            self._replica,
            self.name,
            _about(settings),
            health=health,
            figures=self._figures,
            on_unknown=self.registry.sessions.reopen,
        )
        self._leader = Leader(
            self._namespace,
            self._replica,
            live,
            self.name,
            self._metrics,
            sessions=self.registry.sessions,
            min_broker_changes=self.registry.min_broker_changes,
        )
        self._restoring = Restoring(self._namespace, self._replica, live, self.name)
        self._self_check = SelfCheck(
            self._namespace, self._replica, live, self.name, metrics=self._metrics, health=health
        )
        self.registry.on_suspected_damage = self._self_check.suspect
        self._store_alarms = StoreAlarms(self._client, live, self._metrics, health)
        self._metrics.before_exposition(self._measure)
        self._ports = public
        self._tls = ServerTls(TlsOptions.of(settings))
        self._peers = Peers(PeerLimits.of(settings))
        self._remoting = RemotingServer(self.registry, live, self._metrics, self._tls, self._peers)
        acceptor_options = AcceptorOptions(
            self._tls, settings.proxy_networks, settings.max_connections, self._metrics, self._peers
        )
        self._http_app = create_app(self.registry, live, self._metrics, self._peers)
        self._http = self._serving(self._http_app, public.http, acceptor_options)
        admin_app = create_admin_app(self.registry, self._metrics, draining=stop.asked.is_set)
        self._admin = self._serving(admin_app, admin)

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Runs until a stop is requested. Raises the error that made starting or continuing impossible."""
        try:
            if await self._unless_stopped(self._start()):
                on_ready()
                await self._stop.asked.wait()
        finally:
            await self._end()
        if self._failure is not None:
            raise self._failure

    async def _start(self) -> None:
        settings = self._live.current
        await self._admin.start()
        await self._http_app.warm_up()
        await self._reach_store()
        await open_namespace(self._namespace)
        await import_kv_file(self._namespace, settings.kv_config_path, self.name)
        self._spawn("replica", self._replica.run())
        await self._replica.wait_complete(LOAD_TIMEOUT_MS)
        self._log_run_time_settings()
        self._warn_of_open_access()
        self._spawn("presence", self._presence.run())
        self._spawn("leader", self._leader.run())
        self._spawn("restoring", self._restoring.run())
        self._spawn("self-check", self._self_check.run())
        self._spawn("store alarms", self._store_alarms.run())
        self._spawn("sessions", self.registry.sessions.run())
        self._spawn("refusals", write_refusals_forever(self._namespace, self.registry.audit))
        self._spawn("heartbeat gaps", self.registry.heartbeat_gaps.run())
        await self._tls.open()
        self._spawn("tls", self._tls.run())
        self._spawn("pace", Pace(self._metrics, [self._metrics.sample_http, self._remoting.sample_next]).run())
        _leave_out_of_collections()
        await self._http.start()
        self._remoting.start(self._ports.remoting)

    async def _reach_store(self) -> None:
        settings = self._live.current
        deadline = time.monotonic() + settings.store_wait_ms / 1000
        has_warned = False
        while True:
            try:
                await self._client.open()
                facts = await check_store(self._client, settings.namespace)
            except StoreUnavailableError as error:
                if time.monotonic() >= deadline:
                    raise
                if not has_warned:
                    seconds = settings.store_wait_ms / 1000
                    _log.warning("%s Waiting for it, at most %.0f s (store_wait_ms).", error.message, seconds)
                has_warned = True
                await asyncio.sleep(STORE_PAUSE_SECONDS)
            else:
                _log.info("Store: %s", facts)
                return

    def _log_run_time_settings(self) -> None:
        """They are kept in the store, so the line logged at the start could not contain them."""
        changed = [f"{key}={value}" for key, value, origin in self._live.describe() if origin == Origin.RUN_TIME]
        if changed:
            _log.info("Settings changed at run time: %s", " ".join(changed))

    def _warn_of_open_access(self) -> None:
        for what in open_to_all(self._live.current, self.registry.identities):
            _log.warning("%s See docs/security.md.", OPEN_ACCESS[what])

    async def _end(self) -> None:
        began = time.monotonic()
        self._metrics.draining()
        settings = self._live.current
        self._stop.ask("the start failed")
        drain_seconds = settings.drain_ms / 1000
        _, cut = await asyncio.gather(
            self._remoting.drain(drain_seconds, self._stop.forced), self._http.stop(drain_seconds)
        )
        cut += await self._remoting.close()
        await self._cancel(*(name for name in self._tasks if name != "replica"))
        await self._stop.within(STORE_STOP_SECONDS, self._deregister(), "Deregistering from the store")
        await self._cancel("replica")
        await self._admin.stop(ADMIN_DRAIN_SECONDS)
        await self._client.close()
        _log.info("Stopped in %.1f s; %d requests were cut off.", time.monotonic() - began, cut)

    async def _deregister(self) -> None:
        if self._client.is_connected:
            await self._leader.step_down()
            await self.registry.heartbeat_gaps.flush()
            await write_refusals(self._namespace, self.registry.audit)
            await self._presence.deregister()

    async def _unless_stopped(self, work: Awaitable[None]) -> bool:
        """False when a stop was requested before the work was done. Raises the work's error."""
        doing = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self._stop.asked.wait())
        await asyncio.wait({doing, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if doing.done():
            doing.result()
            return True
        doing.cancel()
        await asyncio.wait({doing}, timeout=STORE_STOP_SECONDS)
        return False

    def _serving(self, app: Any, listener: socket.socket, acceptor_options: AcceptorOptions | None = None) -> Serving:
        settings = self._live.current
        made = http_server(
            app,
            request_timeout_ms=settings.request_timeout_ms,
            drain_ms=settings.drain_ms,
            header_limits=HeaderLimits(
                settings.max_http_header_bytes, settings.max_http_header_line_bytes, settings.max_http_header_count
            ),
            acceptor_options=acceptor_options,
        )
        serving = Serving(made, listener)
        self._stop.on_force(serving.force)
        return serving

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._background_ended)
        self._tasks[name] = task

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        """Background tasks never end by themselves. Without one of them, a worker would give wrong answers."""
        if task.cancelled() or self._stop.asked.is_set():
            return
        error = task.exception() or RuntimeError(f"{task.get_name()} ended")
        if not isinstance(error, RoutebookError):
            _log.error("Background work %r failed.", task.get_name(), exc_info=error)
        self._failure = error
        self._stop.ask(f"{task.get_name()} cannot go on")

    async def _cancel(self, *names: str) -> None:
        tasks = {self._tasks[name] for name in names if name in self._tasks}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STORE_STOP_SECONDS)

    def _measure(self) -> None:
        """Sets the gauges that change without an event, or that the table knows."""
        view = self._replica.view
        instances = sum(len(group.addresses) for group in view.groups.values())
        self._metrics.table(brokers=instances, topics=len(view.topics), clusters=len(view.clusters))
        self._metrics.sessions(len(self.registry.sessions))
        is_open = open_to_all(self._live.current, self.registry.identities)
        self._metrics.open_access({what: what in is_open for what in OPENNESSES})
        lag_changes, lag_seconds = self._replica.lag()
        self._metrics.replica(
            ReplicaFigures(
                version=self._replica.version,
                digest=self._replica.table.digest,
                stale_seconds=self._replica.stale_ms() / 1000,
                complete=self._replica.complete,
                recovering=self._replica.is_recovering,
                lag_changes=lag_changes,
                lag_seconds=lag_seconds,
            )
        )
        self._metrics.tasks(len(asyncio.all_tasks()))
        self._metrics.limits(connections=self._live.current.max_connections, memory_bytes=memory_limit_bytes())
        self._metrics.log_lines_left_out(suppressed_lines())
        counts = self._replica.counts
        self._metrics.feed(
            changes=counts.changes,
            loads=counts.loads,
            breaks={
                "gap": counts.gaps,
                "lost_tail": counts.lost_tails,
                "loss": counts.losses,
                "reconnect": counts.reconnects,
            },
        )

    def _figures(self) -> dict[str, object]:
        """What this worker has done since its start, and how current it is, for `routebook top`. They are written with
        its lease, so that every worker can show those of all.
        """
        lag_changes, lag_seconds = self._replica.lag()
        return {
            **asdict(self._metrics.activity()),
            "sessions": len(self.registry.sessions),
            "lag_changes": lag_changes,
            "lag_seconds": round(lag_seconds, 3),
            "at_ms": int(time.time() * 1000),
        }


def _about(settings: Settings) -> dict[str, object]:
    """Facts that `status` shows for each worker. The ports are the real ones, even when a setting is 0."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": __version__,
        "layout": SCHEMA,
        "started_ms": int(time.time() * 1000),
        "remoting_port": settings.remoting_port,
        "http_port": settings.http_port,
        "admin_port": settings.admin_port,
    }


COLLECTION_THRESHOLDS: Final = (5_000, 20, 20)
"""Python's own first one is 700. A single entry of the history makes more objects than that, none of them garbage."""


def _leave_out_of_collections() -> None:
    """The objects that exist now live as long as the process. To search all of them for garbage, again and again, would
    take tens of milliseconds each time, during which no lookup is answered.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)


def run_worker_process(parent: int) -> int:
    # Unbuffered: a thread waits in this file when the interpreter ends, and must not hold a buffer's lock then.
    standard_input = io.FileIO(0, closefd=False)
    line = standard_input.readline()
    if not line:
        return 1  # The supervisor ended before it sent anything.
    handover = Handover.from_line(line)
    live = LiveSettings(handover.loaded())
    start_logs(live, worker=handover.number)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(handover, live, standard_input))
    except RoutebookError as error:
        _log.error("%s", error)
        return exit_code_of(error)
    finally:
        _remove_orphaned_folder(parent, Path(handover.admin_socket).parent)
    return 0


async def _run(handover: Handover, live: LiveSettings, standard_input: io.FileIO) -> None:
    stop = Stop()
    with stop.on_signals():
        follow_parent(standard_input, stop, live.current.drain_ms)
        admin = listen_privately(Path(handover.admin_socket))
        await Worker(live, handover.ports(), admin, stop).run(_report_ready)


def _remove_orphaned_folder(parent: int, folder: Path) -> None:
    """A supervisor removes its folder itself, unless it was killed; then all workers end and any of them removes it."""
    if os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)


def _report_ready() -> None:
    try:
        os.write(sys.stdout.fileno(), READY)
    except BrokenPipeError:
        return  # The supervisor has ended; `follow_parent` stops this process.
