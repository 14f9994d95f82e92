"""106, 206, 224, 304, 311 to 313: the whole table, or names out of it. None of these looks at liveness."""

from collections.abc import Callable
from typing import Final

from routebook.registry.registry import Registry
from routebook.remoting_api.handlers.asking import Asking
from routebook.remoting_api.reply import Reply
from routebook.replica.pick_up import (
    ClusterInfo,
    TopicList,
    list_system_topics,
    list_topics,
    list_topics_of_cluster,
    list_unit_subscription_topics,
    list_unit_subscription_topics_without_unit,
    list_unit_topics,
    pick_up_cluster_info,
)
from routebook.replica.table import Table
from routebook.settings import LiveSettings
from routebook.wire.bodies.answers import encode_cluster_info, encode_topic_list
from routebook.wire.codes import ResponseCode

DISABLED: Final = Reply(ResponseCode.SYSTEM_ERROR, remark="disable")


class ListHandlers:
    """Bodies are kept while the table is the same: every broker from 5.0 on asks for the cluster table each five
    seconds, which for a thousand of them would be more work than all else.
    """

    def __init__(self, registry: Registry, live: LiveSettings) -> None:
        self._registry = registry
        self._live = live
        self._kept: dict[Callable[[Table], TopicList | ClusterInfo], tuple[int, bytes]] = {}

    async def cluster_info(self, _asking: Asking) -> Reply:
        return self._told(pick_up_cluster_info)

    async def all_topics(self, _asking: Asking) -> Reply:
        return self._told(list_topics) if self._live.current.enable_all_topic_list else DISABLED

    async def topics_of_cluster(self, asking: Asking) -> Reply:
        cluster = asking.text("cluster") or ""
        if not self._live.current.enable_topic_list:
            return DISABLED
        return Reply(body=_encode(list_topics_of_cluster(self._registry.view, cluster)))

    async def system_topics(self, _asking: Asking) -> Reply:
        """The one listing without a switch."""
        return self._told(list_system_topics)

    async def unit_topics(self, _asking: Asking) -> Reply:
        return self._switched(list_unit_topics)

    async def unit_subscription_topics(self, _asking: Asking) -> Reply:
        return self._switched(list_unit_subscription_topics)

    async def unit_subscription_topics_without_unit(self, _asking: Asking) -> Reply:
        return self._switched(list_unit_subscription_topics_without_unit)

    def _switched(self, listing: Callable[[Table], TopicList]) -> Reply:
        return self._told(listing) if self._live.current.enable_topic_list else DISABLED

    def _told(self, look: Callable[[Table], TopicList | ClusterInfo]) -> Reply:
        table, moves = self._registry.view, self._registry.replica.moves
        kept = self._kept.get(look)
        if kept is None or kept[0] != moves:
            kept = self._kept[look] = (moves, _encode(look(table)))
        return Reply(body=kept[1])


def _encode(found: TopicList | ClusterInfo) -> bytes:
    if isinstance(found, ClusterInfo):
        return encode_cluster_info(found.groups, found.clusters)
    return encode_topic_list(found.topics, found.broker_address)
