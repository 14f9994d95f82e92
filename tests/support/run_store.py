"""Chooses the store of a test run, one server for the whole run.

With `--store=url|container|embedded`, a run without that store fails. Without the option, it uses the first that is
available: the store named by `ROUTEBOOK_TEST_REDIS_URL`, a container if a Docker engine answers, the embedded store.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from routebook.errors import RoutebookError
from routebook.store.embedded import EmbeddedStore, find_server
from tests.support.containers import NoContainerError, RedisContainer, image_name

URL_VARIABLE = "ROUTEBOOK_TEST_REDIS_URL"
KINDS = ("url", "container", "embedded")


@dataclass(frozen=True)
class RunStore:
    """A store that is not started yet. `start` returns its URL, and `stop` ends what `start` began."""

    kind: str
    reason: str
    start: Callable[[], str]
    stop: Callable[[], None]


def choose_store(wanted: str | None, environ: Mapping[str, str] = os.environ) -> RunStore:
    """Takes at most a second without a Docker engine, and at most 20 s with one that has to pull the image."""
    if wanted is not None:
        try:
            return _MAKERS[wanted](environ, f"--store={wanted}")
        except (NoContainerError, RoutebookError) as error:
            raise pytest.UsageError(f"--store={wanted} is not available: {error}") from error
    if environ.get(URL_VARIABLE):
        return _given(environ, f"{URL_VARIABLE} is set")
    try:
        return _contained(environ, "a Docker engine answers")
    except NoContainerError as error:
        return _embedded(environ, str(error))


def _given(environ: Mapping[str, str], reason: str) -> RunStore:
    url = environ.get(URL_VARIABLE)
    if not url:
        raise NoContainerError(f"{URL_VARIABLE} is not set")
    return RunStore("url", reason, lambda: url, lambda: None)


def _contained(environ: Mapping[str, str], reason: str) -> RunStore:
    container = RedisContainer.find(image_name(environ))
    return RunStore("container", f"{reason}, image {container.image}", container.start, container.stop)


def _embedded(environ: Mapping[str, str], reason: str) -> RunStore:
    return embedded_store(find_server(environ), reason)


def embedded_store(server: Path, reason: str = "") -> RunStore:
    # With a TCP port, since the fault proxy connects to one.
    store = EmbeddedStore(None, port=0, server=server)
    return RunStore("embedded", f"{reason}; {server.name}", store.start, store.stop)


_MAKERS: Mapping[str, Callable[[Mapping[str, str], str], RunStore]] = {
    "url": _given,
    "container": _contained,
    "embedded": _embedded,
}
