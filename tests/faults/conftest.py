"""The fixture of the laboratory on one store server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.laboratory import Laboratory, single_store


@pytest.fixture
async def laboratory(namespace_name: str, tmp_path: Path, seed: int) -> AsyncIterator[Laboratory]:
    """On a store of its own, which tests may kill and reconfigure. Nothing is started yet: change `settings` first."""
    with single_store() as store:
        async with Laboratory(store, namespace_name, tmp_path, seed) as laboratory:
            yield laboratory
