"""`routebook up`: everything for a first try, in one command, on this machine alone."""

import asyncio
import logging
import sys
from dataclasses import replace
from functools import partial

from routebook import __version__
from routebook.process.parent import stop_when_orphaned
from routebook.process.service import Service, Watch, run_service
from routebook.process.stopping import Stop
from routebook.settings import Loaded, Origin
from routebook.store.embedded import EmbeddedStore
from routebook.store.url import StoreUrl

_log = logging.getLogger(__name__)

_STORE_LOOK_SECONDS = 0.5
_STORE_ENDED_CODE = 3


def run_up(loaded: Loaded, *, end_with_parent: bool = False) -> int:
    """With a store of its own, unless one is named."""
    watches: list[Watch] = [stop_when_orphaned] if end_with_parent else []
    if loaded.settings.redis_url:
        StoreUrl.parse(loaded.settings.redis_url)
        return run_service(loaded, _announce, watches)
    with EmbeddedStore(loaded.settings.data_dir) as store:
        with_store = replace(
            loaded,
            settings=loaded.settings.model_copy(update={"redis_url": store.url}),
            origins={**loaded.origins, "redis_url": Origin.EMBEDDED},
        )
        code = run_service(with_store, _announce, [*watches, partial(_watch_store, store)])
        return code if store.running else _STORE_ENDED_CODE


async def _watch_store(store: EmbeddedStore, stop: Stop) -> None:
    """A store that ended by itself ends all: its socket is gone, so no worker would ever find it again."""
    while store.running:  # noqa: ASYNC110 a process's end sets no event here
        await asyncio.sleep(_STORE_LOOK_SECONDS)
    _log.error("The embedded store ended by itself; its log is in the data folder.")
    stop.ask("no store")


def _announce(service: Service) -> None:
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

Ctrl-C stops all of it; the data stay.
"""
