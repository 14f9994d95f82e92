"""`routebook serve`: a service on a given store. `routebook up`: a service and its own store, on this machine only."""

import asyncio
import logging
import sys
from dataclasses import replace
from functools import partial

from routebook import __version__
from routebook.errors import SettingsError
from routebook.runtime.handover import stop_when_orphaned
from routebook.runtime.service import Service, Watch, run_service
from routebook.runtime.stopping import Stop
from routebook.settings import Loaded, Origin, Settings
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore


def run_serve(loaded: Loaded) -> int:
    if not loaded.settings.redis_url:
        raise SettingsError(
            "`serve` needs a store, and redis_url is not set.",
            advice="Set --redis-url or ROUTEBOOK_REDIS_URL (redis://, unix://, sentinel://, cluster://); "
            "`routebook up` starts its own store.",
        )
    # Checked before the ports are bound: a malformed URL is wrong usage, not an unreachable store.
    StoreUrl.parse(loaded.settings.redis_url)
    return run_service(loaded, _announce)


def _announce(service: Service) -> None:
    settings = service.loaded.settings
    workers = f"{settings.workers} workers" if settings.workers > 1 else "1 worker"
    line = (
        f"Routebook {__version__} serves RocketMQ on {service.remoting_address} and {service.http_address}, "
        f"health and metrics {service.admin_address}, "
        f"namespace {settings.namespace} on {StoreUrl.parse(settings.redis_url).masked()}, {workers}."
    )
    sys.stdout.write(f"{start_line(settings)}\n{line}\n")
    sys.stdout.flush()


def start_line(settings: Settings) -> str:
    """Apache's start line, which scripts wait for. It contains the real port, even when the setting is 0."""
    host = f"[{settings.bind_address}]" if ":" in settings.bind_address else settings.bind_address
    address = f"{host}:{settings.remoting_port}"
    return f"The Name Server boot success. serializeType={settings.serialize_type}, address {address}"


_log = logging.getLogger(__name__)

_STORE_POLL_SECONDS = 0.5
_STORE_ENDED_CODE = 3


def run_up(loaded: Loaded, *, end_with_parent: bool = False) -> int:
    """Starts an embedded store, unless a store is given."""
    watches: list[Watch] = [stop_when_orphaned] if end_with_parent else []
    if loaded.settings.redis_url:
        StoreUrl.parse(loaded.settings.redis_url)
        return run_service(loaded, _announce_of_up, watches)
    with EmbeddedStore(loaded.settings.data_dir) as store:
        with_store = replace(
            loaded,
            settings=loaded.settings.model_copy(update={"redis_url": store.url}),
            origins={**loaded.origins, "redis_url": Origin.EMBEDDED},
        )
        code = run_service(with_store, _announce_of_up, [*watches, partial(_watch_store, store)])
        return code if store.running else _STORE_ENDED_CODE


async def _watch_store(store: EmbeddedStore, stop: Stop) -> None:
    """Stops everything when the store has ended by itself: its socket is gone, so no worker could reach it again."""
    while store.running:  # noqa: ASYNC110 a process's end sets no event here
        await asyncio.sleep(_STORE_POLL_SECONDS)
    _log.error("The embedded store ended by itself; its log is in the data folder.")
    stop.ask("no store")


def _announce_of_up(service: Service) -> None:
    settings = service.loaded.settings
    embedded = service.loaded.origins["redis_url"] is Origin.EMBEDDED
    store = f"{settings.data_dir}/ (embedded)" if embedded else StoreUrl.parse(settings.redis_url).masked()
    sys.stdout.write(
        _TEXT.format(
            version=__version__,
            remoting=service.remoting_address,
            http=service.http_address,
            admin=service.admin_address,
            store=store,
        )
    )
    sys.stdout.flush()


_TEXT = """\
Routebook {version} is up.

  RocketMQ   {remoting}  (namesrvAddr of brokers and clients)
  HTTP API   {http}  (pages: {http}/docs)
  health     {admin}/readyz  (metrics: {admin}/metrics)
  data       {store}

Try next, in another terminal:

  curl -X PUT {http}/v1/clusters/demo/brokers/broker-a/0 \\
       -d '{{"address": "127.0.0.11:10911", "topics": {{"TopicA": {{}}}}, "timeout_ms": 30000}}'
  curl {http}/v1/routes/TopicA
  .venv/bin/routebook status --url {http}

Ctrl-C stops everything; the data remain.
"""
