"""What one broker says of one topic."""

from dataclasses import dataclass, replace
from typing import Final

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
PERM_PRIORITY: Final = 8
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

FLAG_UNIT: Final = 1
FLAG_UNIT_SUBSCRIPTION: Final = 2

ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""The only key-value namespace that the name server itself reads."""

SYNC_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Brokers read their true membership through the route of this topic, so it is never rewritten."""


@dataclass(frozen=True, slots=True)
class QueueData:
    """Queue numbers, permission and flags of one topic on one broker group."""

    read_queues: int = 16
    write_queues: int = 16
    perm: int = PERM_READ_WRITE
    flags: int = 0
    by_request: bool = False
    """Came from register-topic, not from the broker: no broker brings it back after a loss."""

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    def without_write(self) -> "QueueData":
        return replace(self, perm=self.perm & ~PERM_WRITE)

    def pack(self) -> str:
        """The form kept in the store: permission first, since scripts change only that."""
        mark = " t" if self.by_request else ""
        return f"{self.perm} {self.read_queues} {self.write_queues} {self.flags}{mark}"

    @classmethod
    def unpack(cls, packed: str) -> "QueueData":
        perm, read_queues, write_queues, flags, *mark = packed.split(" ")
        return cls(int(read_queues), int(write_queues), int(perm), int(flags), bool(mark))


@dataclass(frozen=True, slots=True)
class TopicMapping:
    """Static topic: which logical queue lives in which physical one on this broker. Kept and returned unchanged."""

    topic: str
    bname: str
    total_queues: int = 0
    epoch: int = 0
    dirty: bool = False
    scope: str = "__global__"
    current_ids: tuple[tuple[int, int], ...] = ()
