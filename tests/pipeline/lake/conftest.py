"""The streams of a namespace on the run's store, and a lake beside."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook_pipeline.lake.tables import Lake
from tests.pipeline.lake.stores import Store
from tests.pipeline.source.streams import URL_ENV


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Whoever chooses a folder may have brackets in its name, which Spark takes for a pattern."""
    lake = Lake(str(tmp_path / "lake of [mine]"), "ns")
    lake.changes.make()
    return lake


@pytest.fixture
def store(store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv(URL_ENV, store_url)
    opened = Store(store_url, namespace_name)
    yield opened
    opened.close()
