"""The bill of materials has every locked requirement and every installed Debian package, always in the same bytes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.image.test_locks import pins

STATUS = (
    "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.41-12\n"
    "Description: C library\n more\n\n"
    "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
)


def bill(lock: str, *more: str) -> str:
    command = [sys.executable, str(ROOT / "deploy" / "make_sbom.py"), str(ROOT / lock), "1.2.3", *more]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("lock", ["requirements-image.lock", "requirements-pipeline.lock"])
def test_every_locked_requirement_is_a_component(lock: str) -> None:
    components = json.loads(bill(lock))["components"]
    assert {f"{one['name']}=={one['version']}" for one in components} == {
        pin.split(" ")[0].lower() for pin in pins(lock)
    }
    assert all(one["hashes"] for one in components)


def test_installed_packages_of_debian_are_components(tmp_path: Path) -> None:
    (tmp_path / "status").write_text(STATUS)
    found = json.loads(bill("requirements-image.lock", str(tmp_path / "status")))["components"]
    debian = [one["purl"] for one in found if one["purl"].startswith("pkg:deb/")]
    assert debian == ["pkg:deb/debian/libc6@2.41-12?arch=amd64"]


def test_the_same_input_gives_the_same_bytes() -> None:
    assert bill("requirements-image.lock") == bill("requirements-image.lock")
