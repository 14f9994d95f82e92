"""A group's smallest id became another one: what its members are told (905), and which of them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MinBrokerChange:
    """One of the two addresses at the end is given: who left, or where the newcomer is replicated from."""

    broker: str
    min_id: int
    min_address: str
    receivers: tuple[str, ...]
    offline_address: str | None = None
    ha_address: str | None = None


def after_joining(broker: str, seats: Mapping[int, str], ha_address: str) -> MinBrokerChange:
    """A member registered with an id below all others: they are told, and it is not, unless it is alone."""
    min_id = min(seats)
    receivers = tuple(address for id_, address in seats.items() if id_ != min_id or len(seats) == 1)
    return MinBrokerChange(broker, min_id, seats[min_id], receivers, ha_address=ha_address)


def after_leaving(broker: str, seats: Mapping[int, str], offline_address: str) -> MinBrokerChange:
    """The member with the smallest id is gone: all that are left are told, the new smallest too."""
    min_id = min(seats)
    return MinBrokerChange(broker, min_id, seats[min_id], tuple(seats.values()), offline_address=offline_address)
