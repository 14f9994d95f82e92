"""What a worker remembers of bodies is bounded."""

from routebook.http_api.known_bodies import KnownBodies
from routebook.model.broker import Registration


def said(broker: str) -> Registration:
    return Registration(cluster="c", broker=broker, broker_id=0, address="127.0.0.1:1")


def test_the_one_not_asked_for_longest_goes_first() -> None:
    known = KnownBodies(held_bytes=30)
    for name in "abc":
        known.keep(name, said(name), 10)
    assert known.find("a") == said("a")
    known.keep("d", said("d"), 10)
    assert [known.find(name) is not None for name in "abcd"] == [True, False, True, True]


def test_what_is_larger_than_all_of_it_is_not_kept() -> None:
    known = KnownBodies(held_bytes=30)
    known.keep("a", said("a"), 10)
    known.keep("b", said("b"), 31)
    assert known.find("a") is not None
    assert known.find("b") is None
