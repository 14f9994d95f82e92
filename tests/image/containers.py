"""Builds the images of this tree, and runs containers of them."""

import json
import os
import shutil
import subprocess
import time
from types import TracebackType
from typing import Any, Self

import pytest

from routebook import __version__
from tests.architecture.sources import ROOT
from tests.support.containers import NoContainerError, RedisContainer, image_name

BUILD_SECONDS = 900
PACKAGES_SECONDS = 300
CANNOT_BUILD = 3
STOP_SECONDS = 20
BUILD_TOOLS = (
    *("pip", "pip3", "gcc", "cc", "ld", "make", "git", "curl", "wget"),
    *("apt", "apt-get", "dpkg", "dpkg-deb", "update-alternatives", "debconf", "perl"),
)
# The security options of the chart's pods.
RESTRICTED: dict[str, Any] = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}


def build_image(target: str, **env: str) -> str:
    """Builds the image if the sources have changed, and returns its name. Skips the test if it cannot be built.

    `env` holds variables for deploy/build_image.sh.
    """
    try:
        RedisContainer.find(image_name())
    except NoContainerError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [ROOT / "deploy" / "build_image.sh", target],
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
        cwd=ROOT,
        env={**os.environ, **env},
    )
    if done.returncode == CANNOT_BUILD:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return env.get("TAG") or f"{'routebook' if target == 'worker' else 'routebook-pipeline'}:{__version__}"


def image_from_packages(image: str, script: str, *arguments: str, **env: str) -> str:
    """Makes the image with one of the tree's scripts, from the distribution's packages, unless it exists.

    Skips the test if the image cannot be made. The image is kept, as if you had run the script yourself.
    """
    if image_exists(image):
        return image
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip(f"there is no image {image}; making it needs root and mmdebstrap")
    done = subprocess.run(
        [ROOT / script, image, *arguments],
        capture_output=True,
        text=True,
        timeout=PACKAGES_SECONDS,
        check=False,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stderr
    return image


def image_exists(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0


def build_tools(container: "Container") -> list[str]:
    """Paths of the programs in the container that build, install or download."""
    line = f'for tool in {" ".join(BUILD_TOOLS)}; do command -v "$tool"; done; true'
    return container.output("sh", "-c", line).split()


def setuid_programs(container: "Container") -> list[str]:
    """Paths of the setuid and setgid programs in the container."""
    return container.output("sh", "-c", "find / -xdev -type f -perm /6000 2>/dev/null || true").split()


class Container:
    """Context manager that runs a container and removes it at the end. Ports are published on 127.0.0.1."""

    def __init__(
        self,
        image: str,
        command: str = "",
        *,
        network: Any,
        alias: str = "",
        env: dict[str, str] | None = None,
        ports: tuple[int, ...] = (),
        tmpfs: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
        # Imported here because it is slow and not always needed.
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415

        inner = DockerContainer(image, command=command or None, env=env, network=network, **options)
        if alias:
            inner.with_network_aliases(alias)
        published: dict[Any, Any] = dict.fromkeys(ports, ("127.0.0.1", None))
        inner.ports = published
        # Engines mount a tmpfs noexec. A pod's emptyDir is not, and Spark loads libraries from it.
        inner.tmpfs = dict.fromkeys(tmpfs, "mode=1777,exec")
        self._container = inner

    def __enter__(self) -> Self:
        self._container.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._container.stop()

    def port(self, inside: int) -> int:
        return int(self._container.get_exposed_port(inside))

    def run(self, *command: str) -> tuple[int, str]:
        """Runs a command in the container; returns its exit code and output (stdout and stderr)."""
        done = self._container.get_wrapped_container().exec_run(list(command))
        return done.exit_code, done.output.decode()

    def output(self, *command: str) -> str:
        """The output of a command that must succeed."""
        code, output = self.run(*command)
        assert code == 0, output
        return output

    @property
    def log(self) -> str:
        return "".join(part.decode() for part in self._container.get_logs())

    @property
    def state(self) -> dict[str, Any]:
        inner = self._container.get_wrapped_container()
        inner.reload()
        state: dict[str, Any] = inner.attrs["State"]
        return state

    @property
    def description(self) -> dict[str, Any]:
        described: dict[str, Any] = self._container.get_wrapped_container().image.attrs
        return described

    def terminate(self) -> int:
        """Sends SIGTERM, as an orchestrator does, and returns the exit code."""
        inner = self._container.get_wrapped_container()
        inner.kill(signal="SIGTERM")
        code: int = inner.wait(timeout=STOP_SECONDS)["StatusCode"]
        return code

    def wait_for_log(self, text: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.log:
            assert time.monotonic() < deadline, f"{text!r} not within {seconds:g} s: {self.log}"
            time.sleep(0.1)

    def wait_for_health(self, wanted: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while self.state["Health"]["Status"] != wanted:
            assert time.monotonic() < deadline, f"not {wanted} within {seconds:g} s: {json.dumps(self.state)}"
            time.sleep(0.2)
