"""Containers of the images that this tree makes, on a network with a store in a container."""

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
BUILDERS = (
    *("pip", "pip3", "gcc", "cc", "ld", "make", "git", "curl", "wget"),
    *("apt", "apt-get", "dpkg", "dpkg-deb", "update-alternatives", "debconf", "perl"),
)
# What the chart's pods run under, but for its limits.
RESTRICTED: dict[str, Any] = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}


def built(target: str, **env: str) -> str:
    """The image of this tree's sources, built anew if they changed; or the test is skipped, with the reason.

    `env`: what deploy/build_image.sh reads.
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


def from_packages(image: str, script: str, *arguments: str, **env: str) -> str:
    """The image, made by a script of this tree out of the distribution's packages unless it is here; or the test is
    skipped, with the reason. It stays, as whoever typed the same would have it.
    """
    if is_here(image):
        return image
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip(f"there is no image {image}; it is made by root, with mmdebstrap")
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


def is_here(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0


def tools_in(box: "Box") -> list[str]:
    """Of those that build, install or fetch."""
    line = f'for tool in {" ".join(BUILDERS)}; do command -v "$tool"; done; true'
    return box.said("sh", "-c", line).split()


def makers_of_root(box: "Box") -> list[str]:
    """Programs that run as their owner or group, whoever calls them."""
    return box.said("sh", "-c", "find / -xdev -type f -perm /6000 2>/dev/null || true").split()


class Box:
    """A container; its published ports are on 127.0.0.1. Removed at the end, whatever happened."""

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
        # Slow to import, and not always needed.
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415

        container = DockerContainer(image, command=command or None, env=env, network=network, **options)
        if alias:
            container.with_network_aliases(alias)
        published: dict[Any, Any] = dict.fromkeys(ports, ("127.0.0.1", None))
        container.ports = published
        # Engines mount it noexec; a pod's emptyDir is not, and Spark loads libraries from there.
        container.tmpfs = dict.fromkeys(tmpfs, "mode=1777,exec")
        self._container = container

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
        """Exit code and what was written, on both outputs."""
        done = self._container.get_wrapped_container().exec_run(list(command))
        return done.exit_code, done.output.decode()

    def said(self, *command: str) -> str:
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
        """SIGTERM, as an orchestrator sends it; the exit code."""
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
