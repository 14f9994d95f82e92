"""All that one name server says about its fleet, at about one time."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from routebook.model.broker import BrokerGroup
from routebook.model.route import TopicRoute


@dataclass(frozen=True, slots=True)
class Said:
    groups: Mapping[str, BrokerGroup]
    clusters: Mapping[str, frozenset[str]]
    topics: frozenset[str] | None
    """None: it does not list them."""
    routes: Mapping[str, TopicRoute | None] = field(default_factory=dict)
    """Of the topics that were asked for; None is "no such topic"."""
    members: Mapping[str, Mapping[int, str]] | None = None
    """By group name (901)."""
    listings: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """By request code: 304, 311 to 313. A code that it declines is missing."""
    key_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By namespace; one that it declines is missing."""
    settings: Mapping[str, str] | None = None
    declined: Mapping[str, str] = field(default_factory=dict)
    """What it was asked and does not say, with its reason."""

    def with_routes(self, routes: Mapping[str, TopicRoute | None]) -> "Said":
        return replace(self, routes=routes)
