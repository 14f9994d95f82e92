"""Events as bytes, and event ids as text."""

import json

import pytest

from routebook.http_api import watch_streams
from routebook.http_api.watch_streams import EventId
from routebook.replica.replica import RouteEvent


def test_a_route_event_contains_the_current_route() -> None:
    raw = watch_streams.encode_route_event(RouteEvent('Topic"A', 1763475600000, 42), b'{"queueDatas":[]}').decode()
    name, event_id, data = raw.removesuffix("\n\n").split("\n")
    assert (name, event_id) == ("event: route", "id: 1763475600000-42")
    assert json.loads(data.removeprefix("data: ")) == {
        "topic": 'Topic"A',
        "version": 42,
        "route": {"queueDatas": []},
    }


def test_the_event_of_a_removed_topic_has_no_route() -> None:
    data = watch_streams.encode_route_event(RouteEvent("A", 1, 2), None).decode().rsplit("data: ", 1)[1]
    assert json.loads(data)["route"] is None


def test_line_feeds_in_a_topic_name_do_not_break_the_event() -> None:
    assert watch_streams.encode_route_event(RouteEvent("A\nid: 9-9", 1, 2), None).count(b"\n") == 4


def test_only_the_last_event_of_a_version_has_an_id_to_resume_from() -> None:
    assert b"id:" not in watch_streams.encode_route_event(RouteEvent("A", 1, 2, last=False), None)


def test_an_event_id_can_be_parsed_back() -> None:
    assert watch_streams.parse_event_id(str(EventId(1763475600000, 42))) == EventId(1763475600000, 42)


@pytest.mark.parametrize("text", ["", "-", "1", "a-b", "1-2-3", "-1-2", "1-" + "9" * 40, "\u0661-\u0662"])
def test_an_invalid_event_id_is_none(text: str) -> None:
    assert watch_streams.parse_event_id(text) is None
