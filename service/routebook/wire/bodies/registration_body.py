"""What the body of a registration says, whatever form it came in."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from routebook.model.data_version import DataVersion
from routebook.model.topic import QueueData, TopicMapping


@dataclass(frozen=True, slots=True)
class RegistrationBody:
    """Each field goes as it is into the field of the same name of `model.Registration`."""

    data_version: DataVersion | None
    topics: Mapping[str, QueueData] = field(default_factory=dict)
    """By the topic's own name."""
    table_keys: frozenset[str] | None = None
    """The keys of the table they came in; None when these are the names."""
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)
    filters: tuple[str, ...] | None = ()
