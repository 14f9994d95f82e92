"""Which package sources the scripts use that make images from the distribution's packages."""

import subprocess
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

SOURCES_SCRIPT = "deploy/unpack_packages.sh"
SCRIPTS = [*(ROOT / "deploy").glob("*.sh"), *(ROOT / "tests" / "containers").glob("*.sh")]
FILES = {
    "debian": ("sources.list.d/debian.sources", "Types: deb\n# URIs: http://old\nURIs: http://mirror/debian\n"),
    "ubuntu": ("sources.list.d/ubuntu.sources", "Types: deb\nURIs: http://mirror/ubuntu http://other\n"),
    "one line": ("sources.list", "# deb http://old bookworm main\ndeb http://mirror/debian bookworm main\n"),
    "options": ("sources.list", "deb [arch=amd64 signed-by=/key.gpg] http://mirror/debian bookworm main\n"),
}


def write_sources(folder: Path, *kinds: str) -> list[str]:
    paths = [folder / FILES[kind][0] for kind in kinds]
    (folder / "sources.list.d").mkdir()
    for path, kind in zip(paths, kinds, strict=True):
        path.write_text(FILES[kind][1])
    return [str(path) for path in paths]


def sources(suite: str, folder: Path) -> list[str]:
    line = f'. ./{SOURCES_SCRIPT}; package_sources "$@"'
    command = ["sh", "-euc", line, "sh", suite, "bookworm", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("kinds", [["debian"], ["ubuntu"], ["one line"], ["debian", "one line"]], ids=" and ".join)
def test_the_machines_own_suite_uses_all_its_sources(kinds: list[str], tmp_path: Path) -> None:
    paths = write_sources(tmp_path, *kinds)
    assert sources("bookworm", tmp_path) == paths


@pytest.mark.parametrize("kind", FILES)
def test_another_suite_uses_the_same_mirror(kind: str, tmp_path: Path) -> None:
    write_sources(tmp_path, kind)
    assert sources("trixie", tmp_path) == ["http://mirror/ubuntu" if kind == "ubuntu" else "http://mirror/debian"]


def test_another_suite_uses_only_one_mirror(tmp_path: Path) -> None:
    write_sources(tmp_path, "debian", "one line")
    assert sources("trixie", tmp_path) == ["http://mirror/debian"]


def test_without_sources_mmdebstrap_uses_its_default(tmp_path: Path) -> None:
    assert sources("bookworm", tmp_path) == sources("trixie", tmp_path) == []


def test_only_one_script_reads_package_sources() -> None:
    """Earlier there were three copies of this rule, and they had diverged."""
    assert [str(path.relative_to(ROOT)) for path in SCRIPTS if "sources.list" in path.read_text()] == [SOURCES_SCRIPT]
    users = {path.name for path in SCRIPTS if "unpack_packages " in path.read_text()} - {Path(SOURCES_SCRIPT).name}
    assert users == {"build_package_image.sh", "build_python_base.sh", "build_redis_image.sh"}
