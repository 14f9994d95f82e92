"""Things as named fields, and two of them side by side."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final, TypeVar

from routebook.model.broker import BrokerGroup
from routebook.model.topic import QueueData, TopicMapping

Scalar = str | int | bool | tuple[str, ...] | None
Fields = Mapping[str, Scalar]
Value = TypeVar("Value")

_NOTHING: Final = (None, False, "", ())


@dataclass(frozen=True, slots=True)
class Difference:
    """`field` None: the thing is on one side only; there, all of it is shown, and the other side is None."""

    kind: str
    name: str
    field: str | None
    here: Scalar
    there: Scalar

    @property
    def thing(self) -> tuple[str, str]:
        return self.kind, self.name

    @property
    def verdict(self) -> str:
        if self.field is not None:
            return "differs"
        return "only here" if self.there is None else "only there"


def compare_fields(kind: str, name: str, here: Fields | None, there: Fields | None) -> Iterator[Difference]:
    """None: not there at all."""
    if here is None or there is None:
        if here is not there:
            yield Difference(kind, name, None, _all_of(here), _all_of(there))
        return
    for field in sorted(here.keys() | there.keys()):
        one, other = here.get(field), there.get(field)
        if one != other and not (one in _NOTHING and other in _NOTHING):
            yield Difference(kind, name, field, one, other)


def compare_things(
    kind: str, here: Mapping[str, Value], there: Mapping[str, Value], fields: Callable[[Value], Fields]
) -> Iterator[Difference]:
    """By name."""
    for name in sorted(here.keys() | there.keys()):
        one, other = here.get(name), there.get(name)
        if one != other:
            shown = (None if one is None else fields(one), None if other is None else fields(other))
            yield from compare_fields(kind, name, *shown)


def group_fields(group: BrokerGroup) -> Fields:
    flags = {"cluster": group.cluster, "zone": group.zone, "acting master": group.acting_master}
    return {**flags, **address_fields(group.addresses)}


def address_fields(addresses: Mapping[int, str]) -> Fields:
    return {f"address {broker_id}": address for broker_id, address in sorted(addresses.items())}


def queue_fields(queue: QueueData) -> Fields:
    return {"read": queue.read_queues, "write": queue.write_queues, "perm": queue.perm, "flags": queue.flags}


def mapping_fields(mapping: TopicMapping) -> Fields:
    ids = tuple(f"{logical}→{real}" for logical, real in mapping.current_ids)
    return {**asdict(mapping), "current_ids": ids}


def value_field(value: str) -> Fields:
    return {"value": value}


def _all_of(fields: Fields | None) -> str | None:
    if fields is None:
        return None
    texts = (f"{field} {text_of(value)}" for field, value in fields.items() if value not in _NOTHING)
    return ", ".join(texts) or "there"


def text_of(value: Scalar) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)
