"""205, 216, 217, 327: operators and brokers change topics."""

from contextlib import suppress
from typing import Final

from routebook.errors import InvalidInputError, NotFoundError
from routebook.registry.registry import Registry
from routebook.remoting_api.handlers.asking import Asking
from routebook.remoting_api.reply import Reply
from routebook.wire.bodies.questions import read_queue_datas
from routebook.wire.fields import write_fields

MAX_ROUTE_BYTES: Final = 32_768
"""Of a route of 300 brokers; a broker sends one of itself alone."""


class TopicHandlers:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def delete(self, asking: Asking) -> Reply:
        """Success also where there was nothing to delete, or no name."""
        with suppress(InvalidInputError):
            await self._registry.delete_topic(
                asking.text("topic") or "", asking.text("clusterName") or None, asking.caller
            )
        return Reply()

    async def register(self, asking: Asking) -> Reply:
        """Success also where the rules put nothing, or not all."""
        queues = dict(read_queue_datas(asking.body_within(MAX_ROUTE_BYTES)))
        topic = asking.text("topic")
        if queues and topic is not None:
            with suppress(NotFoundError):
                await self._registry.register_topic(topic, queues, asking.caller)
        return Reply()

    async def wipe_write_permission(self, asking: Asking) -> Reply:
        return Reply(ext=write_fields({"wipeTopicCount": await self._set_permission(asking, writable=False)}))

    async def add_write_permission(self, asking: Asking) -> Reply:
        return Reply(ext=write_fields({"addTopicCount": await self._set_permission(asking, writable=True)}))

    async def _set_permission(self, asking: Asking, *, writable: bool) -> int:
        """How many topics name the broker, changed or not."""
        try:
            touched = await self._registry.set_write_permission(
                asking.text("brokerName") or "", writable, asking.caller
            )
        except InvalidInputError:
            return 0
        return touched.count
