"""The examples of docs/client.md run, and the client's wheel works without the service."""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.running import Running

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "client.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
OUTPUTS = ["changed", "127.0.0.11:10911 8 ", "TopicA ['broker-a']", "broker-registered"]
ALLOWED = {"httpx", "httpcore", "h11", "anyio", "sniffio", "certifi", "idna", "msgspec", "typing_extensions"}
# httpx loads these for its own command, where they are installed.
ALLOWED |= {"click", "rich", "pygments"}
LISTED = """
import sys
sys.path.insert(0, {wheel!r})
import routebook.client
assert routebook.__file__.startswith({wheel!r}), routebook.__file__
routebook.client.Client("http://127.0.0.1:1").close()
print(*sorted({{name.partition(".")[0] for name in sys.modules}} - sys.stdlib_module_names))
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("examples")
    with Running("up", "--data-dir", str(folder / "data"), folder=folder) as running:
        yield running


def test_every_example_has_an_expected_output() -> None:
    assert len(EXAMPLES) == len(OUTPUTS)


@pytest.mark.parametrize(("example", "output"), [*zip(EXAMPLES, OUTPUTS, strict=True)], ids=range(len(EXAMPLES)))
def test_an_example_runs_as_printed(example: str, output: str, service: Running) -> None:
    environment = {**os.environ, "ROUTEBOOK_URL": service.http}
    command = [sys.executable, "-c", example]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert output in ran.stdout


def test_the_wheel_of_the_client_works_without_the_service(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT / "deploy" / "client", capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("routebook_client-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.endswith(".py")}
        archive.extractall(tmp_path / "wheel")
    own = {f"routebook/client/{path.name}" for path in (ROOT / "service/routebook/client").glob("*.py")}
    assert names == own | {"routebook/__init__.py"}
    program = LISTED.format(wheel=str(tmp_path / "wheel"))
    ran = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    loaded = {name for name in ran.stdout.split() if not name.startswith("_")}
    assert loaded - ALLOWED == {"routebook"}
