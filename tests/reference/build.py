"""Valid registrations by default. A test passes only the values that matter to it."""

from typing import Any

from routebook.model.broker import DataVersion, QueueData, Registration, TopicMapping
from tests.reference.registry import Answer, ReferenceRegistry, Unregistration

A, B, C = "127.0.0.1:10911", "127.0.0.2:10911", "127.0.0.3:10911"
CLUSTER = "east"


def version(counter: int = 0, *, state: int = 0) -> DataVersion:
    return DataVersion(state_version=state, timestamp=1_700_000_000_000, counter=counter)


def topics(*names: str, **changes: Any) -> dict[str, QueueData]:
    return {name: QueueData(**changes) for name in names}


def registration(address: str = A, broker_id: int = 0, **changes: Any) -> Registration:
    """A 5.x master with two topics."""
    defaults: dict[str, Any] = {
        "cluster": CLUSTER,
        "broker": "broker-a",
        "ha_address": address.replace(":10911", ":10912"),
        "acting_master": False,
        "data_version": version(),
        "topics": topics("orders", "payments"),
    }
    return Registration(address=address, broker_id=broker_id, **(defaults | changes))


def mapping(topic: str = "orders", bname: str = "broker-a", epoch: int = 1) -> TopicMapping:
    return TopicMapping(topic=topic, bname=bname, total_queues=4, epoch=epoch, current_ids=((0, 0), (2, 1)))


class Clock:
    """Advances only when a test changes `ms`."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


class ClockedRegistry(ReferenceRegistry):
    """The reference model with a clock of its own and short calls for tests."""

    def __init__(self, *, delete_topic_with_broker_registration: bool = False) -> None:
        self.clock = Clock()
        super().__init__(self.clock, delete_topic_with_broker_registration)
        self._registrations = 0

    def add(self, address: str = A, broker_id: int = 0, **changes: Any) -> Answer:
        """Registers with an incarnation that was not used before."""
        self._registrations += 1
        return self.register(registration(address, broker_id, **changes), f"incarnation-{self._registrations}")

    def remove(self, address: str = A, *, cluster: str = CLUSTER, incarnation: str | None = None) -> bool:
        return self.unregister([Unregistration(cluster, address, "broker-a", incarnation)])[0]

    def seats(self, broker: str = "broker-a") -> dict[int, str]:
        return self.groups[broker].addresses

    def perm(self, topic: str = "orders", broker: str = "broker-a") -> int:
        return self.topics[topic][broker].perm
