"""A stream in the test run's store, written like the service writes it, with ids that the test chooses."""

from collections.abc import Iterator

import pytest

from tests.pipeline.source.streams import URL_ENV, Stream


@pytest.fixture
def stream(store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    monkeypatch.setenv(URL_ENV, store_url)
    with Stream(store_url, namespace_name) as opened:
        yield opened
