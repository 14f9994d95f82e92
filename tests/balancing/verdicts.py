"""What a scenario must have shown. Each verdict begins with whether enough was answered: no failure among no lookups
is no proof.
"""

from collections.abc import Mapping
from typing import Final

from tests.balancing.seen import SeenByKind

DUE_EVERY_S: Final = 0.1
"""Of each client. They ask 20 ms after an answer, some forty times a second; a busy machine may make it ten."""


def assert_all_were_answered(seen: SeenByKind) -> None:
    """With the route and nothing else, each of them often enough; what failed is not judged here."""
    assert seen.wrong == []
    due = seen.seconds / DUE_EVERY_S
    assert seen.seconds > 0
    few = [one.answered for one in seen.each if one.answered < due]
    assert not few, f"{seen.kind}: {few} lookups of a client were answered in {seen.seconds:.1f} s, not {due:.0f}"


def assert_no_lookup_failed(seen: SeenByKind, *, retries: int) -> None:
    """Of none; but a client that knows nothing better may have repeated so many, one for each worker that ended."""
    assert_all_were_answered(seen)
    assert seen.failed == []
    assert seen.most_retried <= retries, f"{seen.kind}: a client repeated {seen.most_retried} lookups, not {retries}"


def assert_a_death_cost_what_waited(seen: Mapping[str, SeenByKind], *, connected: int, share: int) -> None:
    """Of who was `connected` to the dead worker, the one lookup that was under way: lost by who tries once, repeated by
    the old ones. Who connects for each lookup may have been there since, but with them it is no more than the worker's
    `share`.
    """
    for kind in ("old", "http"):
        assert_no_lookup_failed(seen[kind], retries=1)
    for kind in ("following", "brief"):
        assert_all_were_answered(seen[kind])
        assert seen[kind].most_failed <= 1, f"{kind}: a client failed {seen[kind].most_failed} times"
    kept = len(seen["following"].failed) + seen["old"].retried
    assert kept <= connected, f"{kept} lookups failed or were repeated, and {connected} connections were there"
    assert kept + len(seen["brief"].failed) <= share
