"""Which connections of this worker carry which instances. Knows no store.

An instance is carried by every connection over which its present stay was registered or touched; several brokers on one
connection (a container) are several instances. Each opening of a session has a number, its stamp, and the store keeps
the highest: closing names the stamp that was known last, so a closing that is overtaken by a newer opening closes
nothing.
"""

from dataclasses import dataclass, field
from typing import Protocol


class HeldConnection(Protocol):
    """A connection of a port, as far as sessions need it. Hashable by identity, and weakly referenceable."""

    @property
    def peer(self) -> str: ...

    def close(self, reason: str) -> None:
        """The port closes it; it says `sessions.lost` when it is closed, as for any other end."""


@dataclass(slots=True)
class Carried:
    """One instance that at least one connection of this worker carries."""

    incarnation: str
    """Empty: a call to the store that may have opened a session failed, so nobody knows."""
    stamp: int
    connections: set[HeldConnection] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Ended:
    """The last connection of this worker that carried the instance is gone."""

    member: str
    incarnation: str
    stamp: int


class HeldConnections:
    def __init__(self) -> None:
        self._carried: dict[str, Carried] = {}
        self._members: dict[HeldConnection, set[str]] = {}

    def __len__(self) -> int:
        """Instances, not connections."""
        return len(self._carried)

    def incarnation(self, connection: HeldConnection | None, member: str) -> str:
        """Of the stay that the connection carries; empty when it carries none of it."""
        carried = self._carried.get(member)
        return carried.incarnation if carried and connection in carried.connections else ""

    def stays(self) -> list[tuple[str, str]]:
        """Member and incarnation of all that is carried and known."""
        return [(member, carried.incarnation) for member, carried in self._carried.items() if carried.incarnation]

    def carries(self, connection: HeldConnection) -> bool:
        return connection in self._members

    def carriers(self) -> list[HeldConnection]:
        return list(self._members)

    def carriers_of(self, member: str, incarnation: str) -> list[HeldConnection]:
        carried = self._carried.get(member)
        return list(carried.connections) if carried and carried.incarnation == incarnation else []

    def is_current(self, member: str, incarnation: str, stamp: int) -> bool:
        """Still carried, in the same stay, and nothing was opened since."""
        carried = self._carried.get(member)
        return carried is not None and (carried.incarnation, carried.stamp) == (incarnation, stamp)

    def restamp(self, member: str, stamp: int) -> None:
        """Its session is opened once more."""
        self._carried[member].stamp = stamp

    def bind(self, connection: HeldConnection, member: str, incarnation: str, stamp: int) -> None:
        """Another stay than the one carried before: the connections of that one carry nothing of this."""
        carried = self._carried.get(member)
        if carried is None:
            carried = self._carried[member] = Carried(incarnation, stamp)
        elif incarnation and carried.incarnation != incarnation:
            for other in carried.connections - {connection}:
                self._forget(other, member)
            carried.incarnation, carried.connections = incarnation, set()
        carried.stamp = max(carried.stamp, stamp)
        carried.connections.add(connection)
        self._members.setdefault(connection, set()).add(member)

    def unbind(self, connection: HeldConnection, member: str) -> Ended | None:
        """Not carried by this connection any more, though it is still open."""
        carried = self._carried.get(member)
        if carried is None or connection not in carried.connections:
            return None
        self._forget(connection, member)
        carried.connections.discard(connection)
        if carried.connections:
            return None
        del self._carried[member]
        return Ended(member, carried.incarnation, carried.stamp)

    def drop(self, connection: HeldConnection) -> list[Ended]:
        """It is closed."""
        members = sorted(self._members.get(connection, ()))
        ended = [self.unbind(connection, member) for member in members]
        return [one for one in ended if one]

    def _forget(self, connection: HeldConnection, member: str) -> None:
        members = self._members[connection]
        members.discard(member)
        if not members:
            del self._members[connection]
