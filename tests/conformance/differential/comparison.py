"""When two answers are the same to a peer."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.conformance.differential.frames import Answer, Request, read_body
from tests.conformance.differential.moods import AT_START

READ_REMARKS = (
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
"""Beginnings of remarks that say something of their own. The others tell of an exception in Java, as peers show it to
people: that there is one is compared, and nothing of its text.
"""
UNORDERED: dict[str, Callable[[Any], str]] = {
    "topicList": str,
    "brokerDatas": lambda found: found["brokerName"],
    "queueDatas": lambda found: found["brokerName"],
}
ABSENT = "(absent)"


@dataclass(frozen=True)
class Seen:
    """An answer as far as it is compared."""

    code: int
    flag: int
    language: str
    remark: str | None
    ext: dict[str, str] | None
    body: object
    is_standard_json: bool | None


def seen(request: Request, answer: Answer) -> Seen:
    body, is_standard = _body(request, answer)
    return Seen(answer.code, answer.flag, answer.language, _remark(answer), answer.ext, body, is_standard)


def differences(one: Seen, other: Seen) -> list[str]:
    """Each place with both values."""
    return [
        found for name in Seen.__dataclass_fields__ for found in _places(name, getattr(one, name), getattr(other, name))
    ]


def _places(place: str, one: object, other: object) -> Iterable[str]:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _places(f"{place}.{key}", one.get(key, ABSENT), other.get(key, ABSENT))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (item, counterpart) in enumerate(zip(one, other, strict=True)):
            yield from _places(f"{place}[{number}]", item, counterpart)
    else:
        yield f"{place}: {one!r} | {other!r}"


def _remark(answer: Answer) -> str | None:
    if answer.remark is None or answer.remark.startswith(READ_REMARKS):
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
        # Some broker's: which one, the hash table decides.
        parsed["brokerAddr"] = "(some address)"
    return _normal(parsed), is_standard


def _drop_shared_filters(route: dict[str, Any]) -> None:
    """An address seated in two groups may have two lists of filter servers, or one and none: the hash table decides
    which of the groups is looked at last.
    """
    seated = Counter(address for group in route["brokerDatas"] for address in {*group["brokerAddrs"].values()})
    for address, seats in seated.items():
        if seats > 1:
            route["filterServerTable"].pop(address, None)


def settings_of(body: bytes) -> dict[str, str]:
    """Of all settings those that 318 changes; the others differ by nature."""
    lines = dict(line.split("=", 1) for line in body.decode().splitlines())
    return {key: lines.get(key, "(absent)") for key in AT_START}


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
        # A data version that came without one gets the time of reading.
        return "(now)"
    return value
