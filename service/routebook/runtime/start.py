"""`routebook serve`: a service on a given store. `routebook up`: a service and its own store, on this machine only."""

import asyncio
import logging
import shlex
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

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
            url=StoreUrl.parse(settings.redis_url).masked(),
            command=typed_command(),
            option="" if service.http_address == _DEFAULT_URL else f" --url {service.http_address}",
        )
    )
    sys.stdout.flush()


_DEFAULT_URL = "http://127.0.0.1:8080"


def typed_command(program: str = sys.argv[0], folder: Path | None = None) -> str:
    """How this program is started from a shell in `folder`, which is where the command was given."""
    folder = folder or Path.cwd()
    name = Path(program).name
    if name == "__main__.py":
        return f"{_shortest(Path(sys.executable), folder)} -m routebook"
    found = shutil.which(name)
    if found and Path(program).exists() and Path(found).samefile(program):
        return name
    return _shortest(Path(program), folder)


def _shortest(program: Path, folder: Path) -> str:
    """Not resolved: the Python of a virtual environment is a link, which has to stay one."""
    absolute = folder / program
    return shlex.quote(str(absolute.relative_to(folder) if absolute.is_relative_to(folder) else absolute))


_TEXT = """\
Routebook {version} is up.

  RocketMQ   {remoting}  (namesrvAddr of brokers and clients)
  HTTP API   {http}  (console: {http}/, API pages: {http}/docs)
  health     {admin}/readyz  (metrics: {admin}/metrics)
  data       {store}
  store      {url}

Try next, in another terminal:

  curl -X PUT {http}/v1/clusters/demo/brokers/broker-a/0 \\
       -d '{{"address": "127.0.0.11:10911", "topics": {{"TopicA": {{}}}}, "timeout_ms": 30000}}'
  curl {http}/v1/routes/TopicA
  {command} status{option}
  {command} watch{option}

Ctrl-C stops everything; the data remain.
"""
