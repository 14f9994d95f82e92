"""Where Routebook answers otherwise than Apache does on purpose, and a history can meet it: docs/compatibility.md."""

from collections.abc import Callable
from typing import Any

from tests.conformance.differential.comparison import Seen
from tests.conformance.differential.frames import Request
from tests.conformance.differential.line import Side, ask

Departs = Callable[[Request, Seen, Seen, tuple[Side, Side]], bool]


def filters_of_the_dead(request: Request, apache: Seen, routebook: Seen, sides: tuple[Side, Side]) -> bool:
    """An address that a turned-down registration took out of the live table, seated still in another group: Apache's
    goes on to name its filter servers.
    """
    if request.code != 105 or not isinstance(apache.body, dict) or not isinstance(routebook.body, dict):
        return False
    there, here = apache.body, routebook.body
    if there | {"filterServerTable": None} != here | {"filterServerTable": None}:
        return False
    listed, shown = there["filterServerTable"], here["filterServerTable"]
    missing = listed.keys() - shown.keys()
    return {a: found for a, found in listed.items() if a not in missing} == shown and all(
        _is_dead(group["cluster"], address, sides)
        for group in there["brokerDatas"]
        for address in group["brokerAddrs"].values()
        if address in missing
    )


def _is_dead(cluster: str, address: str, sides: tuple[Side, Side]) -> bool:
    asked: dict[str, Any] = {"clusterName": cluster, "brokerAddr": address}
    return not any(ask(side, Request(322, asked)).body for side in sides)


DEPARTURES: tuple[Departs, ...] = (filters_of_the_dead,)
