"""Routes for a client that wants brokers of its own zone: a hook of the reference, behind the lookup."""

from collections.abc import Mapping
from dataclasses import replace

from routebook.model.broker import MASTER_ID, BrokerGroup
from routebook.model.route import TopicRoute
from routebook.wire.fields import read_boolean


def zone_of(ext: Mapping[str, str]) -> str | None:
    """The zone asked for, None when the answer shall not be filtered."""
    name = ext.get("__ZONE_NAME")
    return name if name and name.strip() and read_boolean(ext, "__ZONE_MODE") else None


def filtered_by_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """A group without a master stays whatever its zone, on purpose; queues without a group stay, too."""
    gone = [group for group in route.groups if not _stays(group, zone)]
    names = {group.name for group in gone}
    addresses = {address for group in gone for address in group.addresses.values()}
    return replace(
        route,
        groups=tuple(group for group in route.groups if group.name not in names),
        queues={name: queue for name, queue in route.queues.items() if name not in names},
        filters={address: found for address, found in route.filters.items() if address not in addresses},
    )


def _stays(group: BrokerGroup, zone: str) -> bool:
    return MASTER_ID not in group.addresses or (group.zone or "").casefold() == zone.casefold()
