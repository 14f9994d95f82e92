"""What the client returns and raises: routes, and what RocketMQ's own clients derive from one (the address to use, the
queues to write and read); changes; errors.
"""

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

READABLE: Final = 4
WRITABLE: Final = 2
MASTER_ID: Final = 0
_STATIC_PREFIX: Final = "__syslo__"
"""RocketMQ's clients give the queues of a static topic to a broker that does not exist."""
_GLOBAL_SCOPE: Final = "__global__"
NO_BROKER: Final = "__syslo__none__"


@dataclass(frozen=True, slots=True)
class Broker:
    """One group of the route: the addresses of its master (id 0) and its slaves."""

    name: str
    cluster: str
    addresses: Mapping[int, str]
    zone: str = ""
    acting_master: bool = False

    @property
    def master(self) -> str | None:
        return self.addresses.get(MASTER_ID)

    def select_address(self) -> str | None:
        """RocketMQ's rule: the master, else any of its slaves."""
        return self.master or (random.choice([*self.addresses.values()]) if self.addresses else None)  # noqa: S311


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues that one broker has of a topic. `perm` is the sum of 4 (read), 2 (write) and 1 (inherit)."""

    read: int
    write: int
    perm: int = READABLE | WRITABLE
    flags: int = 0

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & READABLE)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & WRITABLE)


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """`broker` is the name that RocketMQ uses for the queue. `holder` is the broker that has it; they differ for static
    topics only.
    """

    broker: str
    number: int
    holder: str = field(compare=False, default="")


@dataclass(frozen=True, slots=True)
class StaticMapping:
    """What one broker holds of a static topic."""

    holder: str
    total_queues: int
    epoch: int
    scope: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Route:
    """The route of a topic as one worker answered it, and how old that is."""

    topic: str
    brokers: Mapping[str, Broker]
    queues: Mapping[str, Queues]
    """By broker name."""
    filters: Mapping[str, tuple[str, ...]]
    """Filter servers by broker address."""
    order: str | None
    """RocketMQ's configuration of an ordered topic: `broker:queues;…`."""
    version: int
    history: str
    stale_s: float
    """How long the worker had been out of touch with the store when it answered."""
    warnings: tuple[str, ...]
    """`stale`, `recovering`, `removals-held`, `incomplete`: the answer may be old or wrong."""
    read_at: float
    """When it was read, by `time.monotonic()`."""
    raw: Mapping[str, Any] = field(repr=False)
    """RocketMQ's TopicRouteData."""
    is_fallback: bool = False
    """Whether the service could not be asked, so that this is the route that was read before."""
    _mappings: tuple[StaticMapping, ...] = field(default=(), repr=False)

    @property
    def age_s(self) -> float:
        """How old the route may be, in seconds."""
        return time.monotonic() - self.read_at + self.stale_s

    def write_queues(self) -> list[Queue]:
        """The queues that a RocketMQ producer of this topic uses, in its order."""
        if self.order:
            return list(_ordered_queues(self.order))
        if self._mappings and self.order is None:
            return _static_queues(self._mappings)
        return [
            Queue(broker, number, broker)
            for broker, queues in sorted(self.queues.items(), key=lambda item: item[0])
            if queues.is_writable and broker in self.brokers and self.brokers[broker].master
            for number in range(queues.write)
        ]

    def read_queues(self) -> list[Queue]:
        """The queues that RocketMQ's consumers of this topic divide among them."""
        if self._mappings:
            return _static_queues(self._mappings)
        return [
            Queue(broker, number, broker)
            for broker, queues in sorted(self.queues.items(), key=lambda item: item[0])
            if queues.is_readable
            for number in range(queues.read)
        ]


def _ordered_queues(order: str) -> Iterator[Queue]:
    for item in order.split(";"):
        broker, _, count = item.partition(":")
        for number in range(int(count)):
            yield Queue(broker, number, broker)


def _static_queues(mappings: tuple[StaticMapping, ...]) -> list[Queue]:
    """The logical queues of each scope. The broker with the newest epoch holds a queue that several announce."""
    found: list[Queue] = []
    for scope in {mapping.scope for mapping in mappings}:
        name = _STATIC_PREFIX + (scope[2:] if scope == _GLOBAL_SCOPE else scope)
        holders: dict[int, StaticMapping] = {}
        newest, total = -1, 0
        for mapping in sorted(mappings, key=lambda one: -one.epoch):
            if mapping.scope != scope:
                continue
            if mapping.epoch >= newest and mapping.total_queues > total:
                newest, total = mapping.epoch, mapping.total_queues
            for number in mapping.numbers:
                if number not in holders or holders[number].epoch <= mapping.epoch:
                    holders[number] = mapping
        found += [
            Queue(name, number, holders[number].holder if number in holders else NO_BROKER) for number in range(total)
        ]
    return sorted(found)


@dataclass(frozen=True, slots=True)
class RouteEvent:
    """A change of a route. After `is_reset`, changes may have been missed: read again what you know."""

    topic: str
    route: Route | None
    """None: the topic does not exist any more."""
    is_reset: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """An entry of the history. `fields` has all that the service says about it (docs/changes.md)."""

    id: str
    kind: str
    fields: Mapping[str, Any] = field(repr=False)

    @property
    def version(self) -> int:
        """0 for a refusal: it changes nothing, so it has none."""
        return int(self.fields.get("version") or 0)


def route_of(topic: str, data: Mapping[str, Any], headers: Mapping[str, str]) -> Route:
    """`data` is TopicRouteData; `headers` are those of the answer."""
    return Route(
        topic=topic,
        brokers={one["brokerName"]: _broker_of(one) for one in data.get("brokerDatas") or ()},
        queues={one["brokerName"]: _queues_of(one) for one in data.get("queueDatas") or ()},
        filters={address: tuple(names) for address, names in (data.get("filterServerTable") or {}).items()},
        order=data.get("orderTopicConf"),
        version=int(headers.get("x-routebook-version") or 0),
        history=headers.get("x-routebook-history", ""),
        stale_s=float(headers.get("x-routebook-stale-seconds") or 0),
        warnings=tuple(name.strip() for name in headers.get("x-routebook-warnings", "").split(",") if name.strip()),
        read_at=time.monotonic(),
        raw=data,
        _mappings=tuple(_mapping_of(one) for one in (data.get("topicQueueMappingByBroker") or {}).values()),
    )


def _broker_of(data: Mapping[str, Any]) -> Broker:
    addresses = {int(number): address for number, address in (data.get("brokerAddrs") or {}).items()}
    zone, acts = data.get("zoneName") or "", bool(data.get("enableActingMaster"))
    return Broker(data["brokerName"], data.get("cluster") or "", addresses, zone, acts)


def _queues_of(data: Mapping[str, Any]) -> Queues:
    return Queues(data["readQueueNums"], data["writeQueueNums"], data["perm"], data.get("topicSysFlag") or 0)


def _mapping_of(data: Mapping[str, Any]) -> StaticMapping:
    numbers = tuple(sorted(int(number) for number in data.get("currIdMap") or {}))
    return StaticMapping(
        data["bname"], data.get("totalQueues") or 0, data.get("epoch") or 0, data.get("scope") or "", numbers
    )


def decode(content: bytes) -> Any:
    return msgspec.json.decode(content)


# -- errors


class ClientError(Exception):
    """`kind` is the short stable word of the service's answer, such as `topic-not-found`; `advice` says what to do."""

    def __init__(self, detail: str, *, kind: str = "", status: int = 0, advice: str = "") -> None:
        super().__init__(f"{detail} {advice}".strip())
        self.detail = detail
        self.kind = kind
        self.status = status
        self.advice = advice


class NotFoundError(ClientError):
    """The route table is complete and current, and does not have it."""


class NotAllowedError(ClientError):
    """The token is missing or wrong (401), or its identity may not do this (403)."""


class RefusedError(ClientError):
    """The service understood the request and refused it. Repeating it does not help."""


class UnreachableError(ClientError):
    """No address gave a usable answer, after all repetitions."""


class HistoryLostError(ClientError):
    """The history no longer has the entries from where the caller wanted to continue."""
