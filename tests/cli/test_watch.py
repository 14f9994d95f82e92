"""`routebook watch` parses events, and resumes."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from routebook.cli.watch import Event, parse_events
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


@pytest.fixture
def restartable(store_url: str, namespace_name: str, tmp_path: Path) -> Callable[[], Running]:
    """Starts the same service on the same port at each call."""
    port = free_port()
    arguments = ("serve", "--redis-url", store_url, "--namespace", namespace_name, "--bind-address", "127.0.0.1")
    fixed = (*arguments, "--remoting-port", "0", "--http-port", str(port), "--admin-port", "0")
    return lambda: Running(*fixed, folder=tmp_path, ports=False)


@contextmanager
def watching(service: Running) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "routebook", "watch", "--json", "--url", service.http]
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


def _wait_for_watching(watch: "subprocess.Popen[str]") -> None:
    assert watch.stderr
    line = ""
    while not line.startswith("Watching"):
        line = watch.stderr.readline()
        assert line, "the watch has ended"


def _next_topic(watch: "subprocess.Popen[str]") -> str:
    assert watch.stdout
    return str(json.loads(watch.stdout.readline())["data"]["topic"])
