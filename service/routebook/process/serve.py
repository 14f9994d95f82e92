"""`routebook serve`: a service on a store that somebody else runs."""

import sys

from routebook import __version__
from routebook.errors import SettingsError
from routebook.process.service import Service, run_service
from routebook.settings import Loaded, Settings
from routebook.store.url import StoreUrl


def run_serve(loaded: Loaded) -> int:
    if not loaded.settings.redis_url:
        raise SettingsError(
            "`serve` needs a store, and redis_url is not set.",
            advice="Set --redis-url or ROUTEBOOK_REDIS_URL (redis://, unix://, sentinel://, cluster://); "
            "`routebook up` brings a store of its own.",
        )
    # Before the ports are taken: a mistake in it is a wrong setting, not a store that is away.
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
    """Apache's own: scripts and operators wait for it. With the port that was taken, also where a setting said 0."""
    host = f"[{settings.bind_address}]" if ":" in settings.bind_address else settings.bind_address
    address = f"{host}:{settings.remoting_port}"
    return f"The Name Server boot success. serializeType={settings.serialize_type}, address {address}"
