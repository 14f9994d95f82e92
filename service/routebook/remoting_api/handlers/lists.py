"""106, 206, 224, 304, 311 to 313: the whole table, or names out of it. None of these looks at liveness."""

from collections.abc import Callable
from typing import Final

from routebook.registry.registry import Registry
from routebook.remoting_api.handlers.asking import Asking
from routebook.remoting_api.reply import Reply
from routebook.replica.pick_up import (
    TopicList,
    list_system_topics,
    list_topics,
    list_topics_of_cluster,
    list_unit_subscription_topics,
    list_unit_subscription_topics_without_unit,
    list_unit_topics,
)
from routebook.replica.table import Table
from routebook.settings import LiveSettings
from routebook.wire.bodies.answers import encode_cluster_info, encode_topic_list
from routebook.wire.codes import ResponseCode

DISABLED: Final = Reply(ResponseCode.SYSTEM_ERROR, remark="disable")


class ListHandlers:
    def __init__(self, registry: Registry, live: LiveSettings) -> None:
        self._registry = registry
        self._live = live

    async def cluster_info(self, _asking: Asking) -> Reply:
        info = self._registry.cluster_info()
        return Reply(body=encode_cluster_info(info.groups, info.clusters))

    async def all_topics(self, _asking: Asking) -> Reply:
        return self._listed(list_topics) if self._live.current.enable_all_topic_list else DISABLED

    async def topics_of_cluster(self, asking: Asking) -> Reply:
        cluster = asking.text("cluster") or ""
        return self._switched(lambda table: list_topics_of_cluster(table, cluster))

    async def system_topics(self, _asking: Asking) -> Reply:
        """The one listing without a switch."""
        return self._listed(list_system_topics)

    async def unit_topics(self, _asking: Asking) -> Reply:
        return self._switched(list_unit_topics)

    async def unit_subscription_topics(self, _asking: Asking) -> Reply:
        return self._switched(list_unit_subscription_topics)

    async def unit_subscription_topics_without_unit(self, _asking: Asking) -> Reply:
        return self._switched(list_unit_subscription_topics_without_unit)

    def _switched(self, listing: Callable[[Table], TopicList]) -> Reply:
        return self._listed(listing) if self._live.current.enable_topic_list else DISABLED

    def _listed(self, listing: Callable[[Table], TopicList]) -> Reply:
        found = listing(self._registry.view)
        return Reply(body=encode_topic_list(found.topics, found.broker_address))
