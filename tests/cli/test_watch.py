"""`routebook watch` parses events, and resumes."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from routebook.cli.changes import Event, Routes, parse_events
from tests.runtime.running import Running
from tests.support.ports import free_port


@pytest.mark.parametrize(
    ("lines", "events"),
    [
        (["event: route", 'data: {"a":1}', "id: 1-2", ""], [Event("route", '{"a":1}', "1-2")]),
        (["data:x", "data: y", ""], [Event("message", "x\ny", "")]),
        ([": keep-alive", "", "retry: 1000", ""], []),
        (["id: 1-2", "data: x", "", "data: y", ""], [Event("message", "x", "1-2"), Event("message", "y", "1-2")]),
        (["data: half an event"], []),
    ],
)
def test_events_are_parsed_as_the_standard_specifies(lines: list[str], events: list[Event]) -> None:
    assert list(parse_events(lines)) == events


def route(**brokers: tuple[int, int, int]) -> dict[str, Any]:
    """A route: read queues, write queues and permission of each broker; each has one master."""
    return {
        "brokerDatas": [{"brokerName": name, "brokerAddrs": {"0": f"{name}:1"}} for name in brokers],
        "queueDatas": [
            {"brokerName": name, "readQueueNums": read, "writeQueueNums": write, "perm": perm}
            for name, (read, write, perm) in brokers.items()
        ],
    }


def test_what_changed_is_shown_per_broker() -> None:
    routes = Routes()
    routes.keep("orders", route(a=(8, 8, 6), b=(8, 8, 6)))
    assert list(routes.changes_to("orders", route(a=(8, 4, 4), c=(1, 1, 6)))) == [
        ("~", "a", "write queues 8 -> 4; permission rw -> r-"),
        ("-", "b", "8 read, 8 write, rw, at 0=b:1"),
        ("+", "c", "1 read, 1 write, rw, at 0=c:1"),
    ]
    assert list(routes.changes_to("orders", route(a=(8, 4, 4), c=(1, 1, 6)))) == []
    assert list(routes.changes_to("orders", None))[-1] == ("-", "", "no such topic now")


def test_an_unknown_topic_is_new_only_if_all_topics_were_loaded() -> None:
    routes = Routes()
    assert [sign for sign, _, _ in routes.changes_to("first", route(a=(8, 8, 6)))] == ["="]
    routes.has_all = True
    assert [sign for sign, _, _ in routes.changes_to("second", route(a=(8, 8, 6)))] == ["+"]


@pytest.fixture
def restartable(store_url: str, namespace_name: str, tmp_path: Path) -> Callable[[], Running]:
    """Starts the same service on the same port at each call."""
    port = free_port()
    arguments = ("serve", "--redis-url", store_url, "--namespace", namespace_name, "--bind-address", "127.0.0.1")
    fixed = (*arguments, "--remoting-port", "0", "--http-port", str(port), "--admin-port", "0")
    return lambda: Running(*fixed, folder=tmp_path, ports=False)


@contextmanager
def watching(service: Running, *options: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "routebook", "watch", *(options or ("--json", "--url", service.http))]
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watch.stdout
    assert watch.stderr
    try:
        _wait_for_watching(watch)
        yield watch
    finally:
        watch.kill()
        watch.wait()
        watch.stdout.close()
        watch.stderr.close()


def test_watch_prints_changes_and_resumes_when_the_service_is_back(restartable: Callable[[], Running]) -> None:
    with restartable() as first, watching(first) as watch:
        first.register("broker-a", "TopicA")
        assert _next_topic(watch) == "TopicA"
        first.register("broker-b", "TopicB")
        assert _next_topic(watch) == "TopicB"
        assert first.stop() == 0
        with restartable() as second:
            second.register("broker-c", "TopicC")
            # No event is repeated or missed: the next one is the first that was not seen.
            assert _next_topic(watch) == "TopicC"
            watch.send_signal(signal.SIGINT)
            assert watch.wait(10) == 130


def test_watch_survives_a_restart_before_the_first_event(restartable: Callable[[], Running]) -> None:
    with restartable() as first, watching(first) as watch:
        assert first.stop() == 0
        with restartable() as second:
            _wait_for_watching(watch)
            second.register("broker-a", "TopicA")
            assert _next_topic(watch) == "TopicA"


def test_watch_prints_what_changed_for_people(restartable: Callable[[], Running]) -> None:
    with restartable() as service:
        service.register("broker-a", "TopicA")
        with watching(service, "--url", service.http) as watch:
            assert watch.stdout
            service.register("broker-b", "TopicA")
            assert (
                watch.stdout.readline()
                .rstrip()
                .endswith("+ TopicA  broker-b: 8 read, 8 write, rw, at 0=127.0.0.11:10911")
            )
            service.delete("/v1/topics/TopicA")
            assert "  - TopicA  broker-a: " in watch.stdout.readline()
            assert "  - TopicA  broker-b: " in watch.stdout.readline()
            assert watch.stdout.readline().rstrip().endswith("- TopicA  no such topic now")


def _wait_for_watching(watch: "subprocess.Popen[str]") -> None:
    assert watch.stderr
    line = ""
    while not line.startswith("Watching"):
        line = watch.stderr.readline()
        assert line, "the watch has ended"


def _next_topic(watch: "subprocess.Popen[str]") -> str:
    assert watch.stdout
    return str(json.loads(watch.stdout.readline())["data"]["topic"])
