"""Peers of RocketMQ, where this machine can have them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.jars import Unavailable, jars

Release = Callable[..., Path]


@pytest.fixture(scope="session")
def release() -> Release:
    """`release("5.5.0")`, `release("5.5.0", "proxy")`: the folder of these jars, or the test is skipped."""

    def find(version: str, *artifacts: str) -> Path:
        try:
            return jars(version, *artifacts)
        except Unavailable as error:
            pytest.skip(str(error))

    return find
