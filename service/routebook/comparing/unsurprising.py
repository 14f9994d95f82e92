"""What follows from something else that the same server says is left out; what deviates from it is kept."""

from collections.abc import Mapping
from typing import Final

from routebook.comparing.said import Said
from routebook.model.broker import BrokerGroup
from routebook.model.route import TopicRoute
from routebook.model.topic import FLAG_UNIT, FLAG_UNIT_SUBSCRIPTION
from routebook.wire.codes import RequestCode

SETTINGS: Final[Mapping[str, str]] = {
    "orderMessageEnable": "false",
    "returnOrderTopicConfigToBroker": "true",
    "supportActingMaster": "false",
    "enableAllTopicList": "true",
    "enableTopicList": "true",
    "notifyMinBrokerIdChanged": "false",
    "needWaitForService": "false",
    "waitSecondsForService": "45",
    "deleteTopicWithBrokerRegistration": "false",
    "scanNotActiveBrokerInterval": "5000",
}
"""Those whose effect brokers and clients notice, with the default of a server that does not name one."""

_WANTED: Final = {
    int(RequestCode.GET_UNIT_TOPIC_LIST): (FLAG_UNIT, FLAG_UNIT),
    int(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST): (FLAG_UNIT_SUBSCRIPTION, FLAG_UNIT_SUBSCRIPTION),
    int(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST): (FLAG_UNIT | FLAG_UNIT_SUBSCRIPTION, FLAG_UNIT_SUBSCRIPTION),
}
"""Code -> the bits that count, and what they have to be."""


def deviating_groups(route: TopicRoute, said: Said) -> dict[str, BrokerGroup]:
    """Groups that a route shows otherwise than the cluster view does, as with an acting master."""
    return {group.name: group for group in route.groups if group != said.groups.get(group.name)}


def deviating_members(said: Said) -> dict[str, Mapping[int, str]]:
    groups, members = said.groups, said.members or {}
    return {name: found for name, found in members.items() if name in groups and found != groups[name].addresses}


def deviating_listing(code: int, said: Said) -> dict[str, str]:
    listed = said.listings[code]
    if code == RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS:
        may = must = {*said.clusters, *(name for names in said.clusters.values() for name in names)}
    else:
        must, may = _by_flags(code, said)
    return dict.fromkeys(must - listed, "not listed") | dict.fromkeys(listed - may, "listed")


def _by_flags(code: int, said: Said) -> tuple[set[str], set[str]]:
    """Topics that must be listed, and those that may be: the server looks at one entry, whichever comes first. Of
    topics that were not asked for, nothing is known.
    """
    mask, wanted = _WANTED[code]
    must, may = set(), {*said.listings[code]} - said.routes.keys()
    for topic, route in said.routes.items():
        fit = [queue.flags & mask == wanted for queue in route.queues.values()] if route else []
        if any(fit):
            may.add(topic)
            if all(fit):
                must.add(topic)
    return must, may


def settings_of(said: Said) -> dict[str, str]:
    named = said.settings or {}
    return {key: named.get(key, default) for key, default in SETTINGS.items()}
