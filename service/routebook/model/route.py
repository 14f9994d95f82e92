"""The answer to "where does topic T live?", as a value before it becomes bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from routebook.model.broker import BrokerGroup
from routebook.model.topic import QueueData, TopicMapping


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """All maps and lists are in the order of broker names, so that equal routes are equal bytes."""

    queues: Mapping[str, QueueData]
    """By broker name."""
    groups: tuple[BrokerGroup, ...]
    """As a client shall see them: an acting master stands under id 0."""
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By address."""
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)
    """By host broker name."""
    order_conf: str | None = None
