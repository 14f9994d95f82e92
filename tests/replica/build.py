"""Tables and values that are valid by default; a test sets only what matters to it."""

from collections.abc import Iterable, Mapping
from typing import Any

from routebook.model.broker import BrokerGroup, Instance, QueueData, TopicMapping
from routebook.replica.routes import build_route
from routebook.replica.table import Table
from routebook.store.reads import GroupImage

A, B, C = "127.0.0.1:10911", "127.0.0.2:10911", "127.0.0.3:10911"
CLUSTER = "east"
BROKER = "broker-a"


def group(addresses: Mapping[int, str] | None = None, *, name: str = BROKER, **changes: Any) -> BrokerGroup:
    return BrokerGroup(
        name=name, addresses={0: A} if addresses is None else addresses, **({"cluster": CLUSTER} | changes)
    )


def image(
    of_group: BrokerGroup | None,
    queues: Mapping[str, QueueData | None] | Iterable[str] = (),
    *,
    clusters: Iterable[str] | None = None,
    all_queues: bool = True,
    mappings: Mapping[str, TopicMapping] | None = None,
) -> GroupImage:
    if clusters is None:
        clusters = [of_group.cluster] if of_group else []
    return GroupImage(
        group=of_group,
        clusters=frozenset(clusters),
        queues=dict(queues) if isinstance(queues, Mapping) else {topic: QueueData() for topic in queues},
        all_queues=all_queues,
        mappings=dict(mappings or {}),
    )


def table_of(*images: GroupImage) -> Table:
    """A table of groups, each under its own name."""
    table = Table()
    for one in images:
        assert one.group
        table.apply_group(one.group.name, one)
    return table


def instance(address: str = A, **changes: Any) -> Instance:
    defaults: dict[str, Any] = {"cluster": CLUSTER, "broker": BROKER, "broker_id": 0, "incarnation": "i1"}
    return Instance(address=address, **(defaults | changes))


def mapping(bname: str = BROKER, epoch: int = 7) -> TopicMapping:
    return TopicMapping("orders", bname, total_queues=4, epoch=epoch, current_ids=((0, 0), (2, 1)))


def route_of(table: Table, topic: str = "orders", *, acting: bool = False, order: bool = False) -> Any:
    """Typed as Any, so that tests can use the route without checking for None."""
    return build_route(table, topic, support_acting_master=acting, order_conf_enabled=order)
