"""A namespace in the test run's store, a lake, and the environment variables that name them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook_pipeline.history import DAY_MS
from routebook_pipeline.lake.tables import Lake
from tests.pipeline.source.streams import Stream


@pytest.fixture
def stream(store_url: str, namespace_name: str) -> Iterator[Stream]:
    with Stream(store_url, namespace_name) as stream:
        yield stream


@pytest.fixture
def lake(namespace_name: str, tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"), namespace_name)


@pytest.fixture
def environment(store_url: str, lake: Lake) -> dict[str, str]:
    return {
        "ROUTEBOOK_REDIS_URL": store_url,
        "ROUTEBOOK_LAKE": lake.root,
        "ROUTEBOOK_NAMESPACE": lake.namespace,
    }


@pytest.fixture
def midnight_ms() -> int:
    """The last midnight. A test that runs past the next one covers a day more, and stays valid."""
    return int(time.time() * 1000) // DAY_MS * DAY_MS
