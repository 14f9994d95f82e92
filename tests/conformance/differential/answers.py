"""Decides whether two answers are the same for a peer."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.conformance.differential.frames import Answer, Request, read_body
from tests.conformance.differential.profiles import AT_START

COMPARED_REMARKS = (
    " request type ",
    "No topic route info in name server for the topic: ",
    "No config item, ",
    "crc32 not match",
    "register broker failed",
    "namespace or key is null",
    "disable",
    "name server not ready",
    "string2Properties error",
    "Can not update config in black list.",
    "not set any response code",
)
"""Beginnings of the remarks that are compared. Other remarks are texts of Java exceptions, which are not compared."""
UNORDERED: dict[str, Callable[[Any], str]] = {
    "topicList": str,
    "brokerDatas": lambda item: item["brokerName"],
    "queueDatas": lambda item: item["brokerName"],
}
ABSENT = "(absent)"


@dataclass(frozen=True)
class Compared:
    """The parts of an answer that are compared."""

    code: int
    flag: int
    language: str
    remark: str | None
    ext: dict[str, str] | None
    body: object
    is_standard_json: bool | None


def compared(request: Request, answer: Answer) -> Compared:
    body, is_standard = _body(request, answer)
    return Compared(answer.code, answer.flag, answer.language, _remark(answer), answer.ext, body, is_standard)


def differences(one: Compared, other: Compared) -> list[str]:
    """Each field that differs, with both values."""
    return [
        difference
        for name in Compared.__dataclass_fields__
        for difference in _differences_at(name, getattr(one, name), getattr(other, name))
    ]


def _differences_at(place: str, one: object, other: object) -> Iterable[str]:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differences_at(f"{place}.{key}", one.get(key, ABSENT), other.get(key, ABSENT))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (item, counterpart) in enumerate(zip(one, other, strict=True)):
            yield from _differences_at(f"{place}[{number}]", item, counterpart)
    else:
        yield f"{place}: {one!r} | {other!r}"


def _remark(answer: Answer) -> str | None:
    if answer.remark is None or answer.remark.startswith(COMPARED_REMARKS):
        return answer.remark
    return "(an exception)"


def _body(request: Request, answer: Answer) -> tuple[object, bool | None]:
    if not answer.body:
        return None, None
    if request.code == 319:
        return settings_of(answer.body), None
    parsed, is_standard = read_body(answer.body)
    if request.code == 105 and isinstance(parsed, dict):
        _drop_shared_filters(parsed)
    if request.code == 304 and isinstance(parsed, dict) and "brokerAddr" in parsed:
        # The address of any broker: the order of a hash map decides which one.
        parsed["brokerAddr"] = "(some address)"
    return _normal(parsed), is_standard


def _drop_shared_filters(route: dict[str, Any]) -> None:
    """Removes the filter servers of an address with seats in two groups. The groups may have different ones, and the
    order of a hash map decides which ones are shown.
    """
    seats_of = Counter(address for group in route["brokerDatas"] for address in {*group["brokerAddrs"].values()})
    for address, seats in seats_of.items():
        if seats > 1:
            route["filterServerTable"].pop(address, None)


def settings_of(body: bytes) -> dict[str, str]:
    """The settings that 318 can change. All other settings differ anyway."""
    connections = dict(connection.split("=", 1) for connection in body.decode().splitlines())
    return {key: connections.get(key, "(absent)") for key in AT_START}


def _normal(value: Any, name: str = "") -> object:
    if isinstance(value, dict):
        return {key: _normal(item, "names" if name == "clusterAddrTable" else key) for key, item in value.items()}
    if isinstance(value, list):
        items: Iterable[Any] = value
        if name == "names":
            items = sorted(value)
        elif name in UNORDERED:
            items = sorted(value, key=UNORDERED[name])
        return [_normal(item) for item in items]
    if name == "timestamp" and isinstance(value, int) and abs(value - time.time() * 1000) < 3_600_000:
        # A data version without a timestamp gets the time at which it was read.
        return "(now)"
    return value
