"""What a history is about, and with which settings all of them begin."""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
SWITCHES = (
    "enableAllTopicList",
    "enableTopicList",
    "orderMessageEnable",
    "returnOrderTopicConfigToBroker",
    "supportActingMaster",
    "needWaitForService",
    "deleteTopicWithBrokerRegistration",
)
AT_START = {
    "enableAllTopicList": "true",
    "enableTopicList": "true",
    "orderMessageEnable": "false",
    "returnOrderTopicConfigToBroker": "true",
    "supportActingMaster": "false",
    "notifyMinBrokerIdChanged": "false",
    "needWaitForService": "false",
    "waitSecondsForService": "0",
    "deleteTopicWithBrokerRegistration": "false",
}
"""All that 318 changes at once. The wait is for ever or none: anything between would depend on the clock."""


@dataclass(frozen=True)
class Mood:
    """What one history is about. It is drawn first, so that rules that need several settings get their time."""

    acting: bool
    """Acting masters are on, and nearly all brokers ask for it."""
    ordered: bool
    """The namespace of ordered topics is used; once made it never goes again."""
    losing: bool
    """Connections are lost and moved."""
    deleting: bool
    """deleteTopicWithBrokerRegistration is on."""
    old_peers: bool
    binary: float


def mood_of(seed: int) -> Mood:
    dice = Random(f"mood {seed}")
    return Mood(
        acting=dice.random() < 0.4,
        ordered=seed % 2 == 1,
        losing=seed % 10 == 9,
        deleting=dice.random() < 0.25,
        old_peers=dice.random() < 0.25,
        binary=dice.choice([0.0, 0.2, 0.5]),
    )


def in_order(seeds: Iterable[int]) -> list[int]:
    """A namespace once made stays: histories that must not see the one of ordered topics come first."""
    return sorted(seeds, key=lambda seed: mood_of(seed).ordered)


def properties(values: dict[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in values.items()).encode()
