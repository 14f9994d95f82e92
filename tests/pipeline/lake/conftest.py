"""The streams of a namespace in the test run's store, and a lake."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook_pipeline.lake.tables import Lake
from tests.pipeline.lake.stores import Store
from tests.pipeline.source.streams import URL_ENV


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The name of its folder has brackets, which Spark would take for a pattern."""
    lake = Lake(str(tmp_path / "lake of [mine]"), "ns")
    lake.changes.create()
    return lake


@pytest.fixture
def store(store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv(URL_ENV, store_url)
    opened = Store(store_url, namespace_name)
    yield opened
    opened.close()
