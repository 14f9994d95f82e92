"""Intended differences between Apache's and Routebook's answers that a history can contain: docs/compatibility.md."""

from collections.abc import Callable
from typing import Any

from tests.conformance.differential.answers import Compared
from tests.conformance.differential.connections import Side, ask
from tests.conformance.differential.frames import Request

IsKnown = Callable[[Request, Compared, Compared, tuple[Side, Side]], bool]


def filters_of_removed_instances(
    request: Request, apache: Compared, routebook: Compared, sides: tuple[Side, Side]
) -> bool:
    """A registration that is turned down removes the instance of an address that has a seat in another group. Apache's
    name server still shows its filter servers.
    """
    if request.code != 105 or not isinstance(apache.body, dict) or not isinstance(routebook.body, dict):
        return False
    theirs, ours = apache.body, routebook.body
    if theirs | {"filterServerTable": None} != ours | {"filterServerTable": None}:
        return False
    their_filters, our_filters = theirs["filterServerTable"], ours["filterServerTable"]
    missing = their_filters.keys() - our_filters.keys()
    return {a: filters for a, filters in their_filters.items() if a not in missing} == our_filters and all(
        _is_removed(group["cluster"], address, sides)
        for group in theirs["brokerDatas"]
        for address in group["brokerAddrs"].values()
        if address in missing
    )


def _is_removed(cluster: str, address: str, sides: tuple[Side, Side]) -> bool:
    ext: dict[str, Any] = {"clusterName": cluster, "brokerAddr": address}
    return not any(ask(side, Request(322, ext)).body for side in sides)


KNOWN_DIFFERENCES: tuple[IsKnown, ...] = (filters_of_removed_instances,)
