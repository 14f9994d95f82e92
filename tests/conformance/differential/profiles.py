"""The profile of a random history, and the settings at the beginning of each."""

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
"""All settings that 318 changes at once. The waiting time is endless or zero, so that nothing depends on the clock."""


@dataclass(frozen=True)
class Profile:
    """Chosen before the steps of a history, so that rules that depend on several settings are tested often enough."""

    acting: bool
    """Acting masters are enabled, and nearly all brokers request them."""
    ordered: bool
    """The key-value namespace of ordered topics is used. It can never be deleted."""
    losing: bool
    """Connections are lost and replaced."""
    deleting: bool
    """deleteTopicWithBrokerRegistration is enabled."""
    old_peers: bool
    binary: float


def profile_of(seed: int) -> Profile:
    # Another text here would change all histories.
    dice = Random(f"mood {seed}")
    return Profile(
        acting=dice.random() < 0.4,
        ordered=seed % 2 == 1,
        losing=seed % 10 == 9,
        deleting=dice.random() < 0.25,
        old_peers=dice.random() < 0.25,
        binary=dice.choice([0.0, 0.2, 0.5]),
    )


def sort_seeds(seeds: Iterable[int]) -> list[int]:
    """Histories without the namespace of ordered topics come first, since it cannot be deleted."""
    return sorted(seeds, key=lambda seed: profile_of(seed).ordered)


def properties(values: dict[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in values.items()).encode()
