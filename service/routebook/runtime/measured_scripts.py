"""The scripts of a worker, each call timed and counted.

What became of a registration is counted here and not in the registry, because the script alone decides it.
"""

from time import perf_counter
from typing import Any, Final

from routebook.errors import StoreError
from routebook.observability.metrics import Metrics, RegistrationKind
from routebook.store.connection.client import StoreClient
from routebook.store.namespace import Status
from routebook.store.scripts import ScriptSet

_REGISTRATIONS: Final[dict[tuple[str, int], RegistrationKind]] = {
    ("touch_broker", Status.UNCHANGED): "unchanged",
    ("register_broker", Status.DONE): "changed",
    ("register_broker", Status.UNCHANGED): "unchanged",
    ("register_broker", Status.REFUSED): "refused",
    ("register_broker", Status.TURNED_DOWN): "turned_down",
}


class MeasuredScripts(ScriptSet):
    def __init__(self, scripts: ScriptSet, metrics: Metrics) -> None:
        super().__init__({name: scripts[name] for name in scripts.names})
        self._metrics = metrics

    async def run(self, client: StoreClient, name: str, key: str, *args: str | bytes | int) -> Any:
        start = perf_counter()
        try:
            reply = await super().run(client, name, key, *args)
        except StoreError as error:
            self._metrics.store_call(name, _failure(error), perf_counter() - start)
            raise
        self._metrics.store_call(name, "ok", perf_counter() - start)
        self._count(name, reply)
        return reply

    async def run_all(self, client: StoreClient, name: str, key: str, arguments: list[list[str]]) -> list[Any]:
        start = perf_counter()
        try:
            replies = await super().run_all(client, name, key, arguments)
        except StoreError as error:
            self._metrics.store_call(name, _failure(error), perf_counter() - start)
            raise
        self._metrics.store_call(name, "ok", perf_counter() - start)
        return replies

    def _count(self, name: str, reply: Any) -> None:
        if not isinstance(reply, list) or not reply:
            return
        kind = _REGISTRATIONS.get((name, reply[0]))
        if kind is not None:
            self._metrics.registration(kind)
        elif name == "heartbeat_broker" and reply[0] == Status.UNCHANGED:
            self._metrics.heartbeat()


def _failure(error: StoreError) -> str:
    """`StoreUnavailableError` becomes `store_unavailable`: few values, each a kind of trouble."""
    words = type(error).__name__.removesuffix("Error")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words).lstrip("_")
