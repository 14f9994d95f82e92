"""Which store this test run uses, and why: one server a run, chosen once.

`--store=url|container|embedded` demands one and fails when it cannot be had; without it the first that is
possible is taken: `ROUTEBOOK_TEST_REDIS_URL`, else a container where a Docker engine answers, else the
embedded server.
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
    """A chosen store, not yet started: `start` gives its URL, `stop` ends what was started."""

    kind: str
    reason: str
    start: Callable[[], str]
    stop: Callable[[], None]


def choose_store(wanted: str | None, environ: Mapping[str, str] = os.environ) -> RunStore:
    """Cheap when no Docker engine answers; at most 20 s when one has to fetch the image."""
    if wanted is not None:
        try:
            return _MAKERS[wanted](environ, f"--store={wanted}")
        except (NoContainerError, RoutebookError) as error:
            raise pytest.UsageError(f"--store={wanted} cannot be had: {error}") from error
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
    # Also on TCP: the fault proxy stands in front of it there.
    store = EmbeddedStore(None, port=0, server=server)
    return RunStore("embedded", f"{reason}; {server.name}", store.start, store.stop)


_MAKERS: Mapping[str, Callable[[Mapping[str, str], str], RunStore]] = {
    "url": _given,
    "container": _contained,
    "embedded": _embedded,
}
