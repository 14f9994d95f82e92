"""The cache of encoded routes is limited in size."""

from routebook.replica.replica import RouteCache


def test_the_oldest_route_is_evicted_when_the_cache_is_full() -> None:
    answers = RouteCache(max_bytes=10)
    for topic in ("a", "b", "c"):
        answers.put(topic, b"1234")
    assert (answers.get("a"), answers.get("b"), answers.get("c")) == (None, b"1234", b"1234")
    assert (answers.size_bytes, len(answers)) == (8, 2)


def test_a_route_larger_than_the_cache_is_not_kept() -> None:
    answers = RouteCache(max_bytes=3)
    answers.put("a", b"1234")
    assert (answers.get("a"), answers.size_bytes) == (None, 0)


def test_taking_out_returns_the_cached_routes() -> None:
    answers = RouteCache()
    for topic in ("a", "b", "c"):
        answers.put(topic, topic.encode())
    assert answers.take_out({"a", "x"}) == {"a": b"a"}
    assert answers.take_out({"b", "x", "y", "z"}) == {"b": b"b"}
    assert (answers.get("c"), answers.size_bytes) == (b"c", 1)


def test_putting_a_route_again_replaces_it() -> None:
    answers = RouteCache()
    answers.put("a", b"12")
    answers.put("a", b"345")
    assert (answers.get("a"), answers.size_bytes) == (b"345", 3)
