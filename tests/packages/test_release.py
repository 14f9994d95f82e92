"""What `make release` builds is complete, is the same each time, and works where nothing else is installed."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from email.message import Message
from email.parser import Parser
from pathlib import Path

import httpx
import pytest

import routebook
from tests.architecture.sources import ROOT, tracked_files
from tests.runtime.running import Running

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
URL = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["project-url"]
VERSION = routebook.__version__
FILES = {
    f"routebook-{VERSION}-py3-none-any.whl",
    f"routebook-{VERSION}.tar.gz",
    f"routebook-chart-{VERSION}.tgz",
    f"routebook-pipeline-{VERSION}.cdx.json",
    f"routebook-worker-{VERSION}.cdx.json",
    f"routebook_client-{VERSION}-py3-none-any.whl",
}
CLIENTS_PACKAGES = {"anyio", "certifi", "h11", "httpcore", "httpx", "idna", "msgspec", "typing-extensions"}
"""All that the client needs, directly or not. pip refuses to install anything that is not named with its hash."""
INSTALL_SECONDS = 300.0


def build(output: Path, **environment: str) -> Path:
    command = [sys.executable, str(ROOT / "deploy/build_release.py"), "--no-images", "--output", str(output)]
    env = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"} | environment
    done = subprocess.run(command, cwd=output.parent, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("a release is built from a commit; this is no clone, or git is not installed")
    return build(tmp_path_factory.mktemp("release") / "first")


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def contents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as files:
        members = [(one.name, files.extractfile(one)) for one in files]
        return {name: file.read() for name, file in members if file is not None}


# -- what is in the repository


def test_the_development_tools_are_no_extra_of_the_package() -> None:
    assert set(PROJECT["project"]["optional-dependencies"]) == {"embedded", "pipeline", "tls"}
    assert any(one.startswith("pytest") for one in PROJECT["dependency-groups"]["dev"])


def test_every_named_version_of_the_product_is_this_one() -> None:
    """`service/routebook/__init__.py` is the source; Chart.yaml and CHANGELOG.md have tests of their own."""
    named = re.compile(
        r"\brouteboo[k](?:-pipeline)?:(?P<version>\d+\.\d+\.\d+)|\bRouteboo[k] (?P<shown>\d+\.\d+\.\d+) "
    )
    texts = [path for path in tracked_files() if path.suffix in {".md", ".yaml"} and path.name != "CHANGELOG.md"]
    found = {
        (path.relative_to(ROOT).as_posix(), one["version"] or one["shown"])
        for path in texts
        for one in named.finditer(path.read_text())
    }
    assert len(found) > 5
    assert {(path, version) for path, version in found if version != VERSION} == set()


# -- what a release contains


@pytest.mark.slow
def test_a_release_has_these_files_and_their_checksums(release: Path) -> None:
    lines = (release / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    assert listed == {name: hashlib.sha256((release / name).read_bytes()).hexdigest() for name in FILES}
    assert {path.name for path in release.iterdir()} == FILES | {"SHA256SUMS"}


@pytest.mark.slow
def test_a_second_build_has_the_same_checksums(release: Path, tmp_path: Path) -> None:
    """In another folder, another time zone and locale, with another hash seed and umask."""
    before = os.umask(0o077)
    try:
        second = build(tmp_path / "second", TZ="Asia/Tokyo", LC_ALL="C", PYTHONHASHSEED="7")
    finally:
        os.umask(before)
    assert (second / "SHA256SUMS").read_text() == (release / "SHA256SUMS").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name in FILES if name.endswith(".whl")))
def test_a_wheel_says_who_made_it_and_where_it_is_from(release: Path, name: str) -> None:
    metadata = metadata_of(release / name)
    urls = dict(one.split(", ", 1) for one in metadata.get_all("Project-URL", []))
    assert urls.keys() == {"Homepage", "Source", "Documentation", "Changelog", "Issues"}
    assert all(url.startswith(URL) for url in urls.values())
    assert metadata["Author"]
    assert metadata["Version"] == VERSION
    assert metadata["License-Expression"] == "Apache-2.0"
    for python in ("3.11", "3.12", "3.13", "3.14"):
        assert f"Programming Language :: Python :: {python}" in metadata.get_all("Classifier", [])


@pytest.mark.slow
def test_every_link_of_the_description_is_absolute_and_has_a_file(release: Path) -> None:
    (wheel,) = release.glob("routebook-*.whl")
    description = str(metadata_of(wheel).get_payload())
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", description, flags=re.MULTILINE | re.DOTALL))
    ours = [target for target in targets if target.startswith(URL)]
    assert len(ours) > 20
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    assert f"![The console's overview]({URL}/raw/v{VERSION}/docs/images/console-overview.png)" in description
    for target in ours:
        path = re.sub(rf"^{re.escape(URL)}/(?:blob|raw)/v{re.escape(VERSION)}/", "", target).partition("#")[0]
        assert (ROOT / path).exists(), target


@pytest.mark.slow
def test_the_chart_of_a_release_has_the_files_of_the_chart(release: Path) -> None:
    chart = ROOT / "helm/routebook"
    packed = contents(release / f"routebook-chart-{VERSION}.tgz")
    assert next(iter(packed)) == "routebook/Chart.yaml"
    expected = {
        path for path in tracked_files() if path.is_relative_to(chart) and not path.is_relative_to(chart / "ci")
    }
    assert packed.keys() == {f"routebook/{path.relative_to(chart).as_posix()}" for path in expected}


@pytest.mark.slow
def test_the_wheel_has_the_manual_pages_and_the_scripts(release: Path) -> None:
    (wheel,) = release.glob("routebook-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    pages = {name.rpartition("/")[2] for name in names if "/share/man/man1/" in name}
    assert pages == {path.name for path in (ROOT / "service/man").iterdir()}
    scripts = {name.removeprefix("routebook/lua/") for name in names if name.startswith("routebook/lua/")}
    assert scripts >= {path.relative_to(ROOT / "lua").as_posix() for path in (ROOT / "lua").rglob("*.lua")}
    assert "routebook/py.typed" in names
    with zipfile.ZipFile(release / f"routebook_client-{VERSION}-py3-none-any.whl") as archive:
        assert "routebook/py.typed" in archive.namelist()


# -- where nothing else is installed


def locked(only: set[str] | None = None) -> str:
    """The entries of requirements.lock, with their hashes."""
    entries = re.findall(
        r"^(?P<entry>(?P<name>[a-z0-9-]+)==.*(?:\n {4}.*)+)", (ROOT / "requirements.lock").read_text(), re.M
    )
    chosen = [entry for entry, name in entries if only is None or name in only]
    assert len(chosen) >= len(only or entries)
    return "\n".join(chosen)


def install(folder: Path, wheel: Path, requirements: str) -> Path:
    """Installs the wheel and what it requires into a new environment: the locked versions, with their hashes."""
    venv.EnvBuilder(symlinks=True).create(folder)
    file = folder / "requirements.txt"
    file.write_text(
        f"{requirements}\n{wheel.as_uri()} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
    )
    done = pip(folder, "install", "--quiet", "--no-compile", "--require-hashes", "--requirement", str(file))
    if re.search("No matching distribution|ConnectionError|NewConnectionError", done.stderr):
        pytest.skip(f"the required packages cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return folder


def pip(environment: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """That of the tests: the new environment has none, which saves the time to install it."""
    command = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)


def packages_in(environment: Path) -> set[str]:
    listed = pip(environment, "list", "--format=freeze").stdout.split()
    return {line.partition("==")[0].replace("_", "-") for line in listed}


def run(environment: Path, program: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Outside the checkout, and without the variables that could lead back into it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ROUTEBOOK"))}
    done = subprocess.run(
        [str(environment / "bin" / program), *arguments],
        cwd=environment,
        env={**clean, **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_installed_wheel_serves_a_lookup(release: Path, tmp_path: Path) -> None:
    (wheel,) = release.glob("routebook-*.whl")
    installed = install(tmp_path / "service", wheel, locked())
    assert run(installed, "routebook", "--version").strip() == f"routebook, version {VERSION}"
    assert pip(installed, "check").returncode == 0
    assert (installed / "share/man/man1/routebook-status.1").is_file()
    where = run(installed, "python", "-c", "import routebook; print(routebook.__file__)")
    assert Path(where.strip()).is_relative_to(installed)
    program = (str(installed / "bin/routebook"),)
    with Running("up", "--data-dir", str(tmp_path / "data"), folder=tmp_path, program=program) as up:
        body = {"address": "127.0.0.11:10911", "topics": {"orders": {"read_queues": 8, "write_queues": 8, "perm": 6}}}
        answer = httpx.put(f"{up.http}/v1/clusters/demo/brokers/broker-a/0", json=body, trust_env=False)
        assert answer.is_success, answer.text
        route = run(installed, "routebook", "route", "orders", "--url", up.http)
        assert "127.0.0.11:10911" in route


@pytest.mark.slow
def test_the_installed_client_needs_no_package_of_the_server(release: Path, tmp_path: Path) -> None:
    (wheel,) = release.glob("routebook_client-*.whl")
    installed = install(tmp_path / "client", wheel, locked(CLIENTS_PACKAGES))
    assert packages_in(installed) == CLIENTS_PACKAGES | {"routebook-client"}
    assert pip(installed, "check").returncode == 0
    program = (
        "from routebook.client import Client, Queues\n"
        "with Client() as names, names.register('demo', 'broker-a', '127.0.0.11:10911', {'orders': Queues(8, 8)}):\n"
        "    print(names.lookup('orders').brokers['broker-a'].select_address())\n"
    )
    with Running("up", "--data-dir", str(tmp_path / "data"), folder=tmp_path) as up:
        assert run(installed, "python", "-c", program, env={"ROUTEBOOK_URL": up.http}).strip() == "127.0.0.11:10911"
