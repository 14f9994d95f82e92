"""Redis in a container, through testcontainers, where a Docker engine answers."""

import os
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

IMAGE_VARIABLE = "ROUTEBOOK_TEST_REDIS_IMAGE"
DEFAULT_IMAGE = "redis:7-bookworm"
ENGINE_SECONDS = 1.0
FETCH_SECONDS = 20.0
REDIS_PORT = 6379


class NoContainerError(Exception):
    """No container can be had on this machine; the text says why."""


def image_name(environ: Mapping[str, str] = os.environ) -> str:
    return environ.get(IMAGE_VARIABLE) or DEFAULT_IMAGE


class RedisContainer:
    """One container, its port published on 127.0.0.1."""

    def __init__(self, image: str, command: str = "redis-server --save '' --maxmemory-policy noeviction") -> None:
        self.image = image
        self._command = command
        self._container: Any = None

    @classmethod
    def find(cls, image: str) -> "RedisContainer":
        """Raises NoContainerError within a second when no engine answers (a `docker` on the path proves
        nothing).
        """
        engine = _engine()
        try:
            _have_image(engine, image)
        finally:
            engine.close()
        return cls(image)

    def start(self) -> str:
        # The reaper is an image of its own that a machine without a registry lacks; we stop what we start.
        os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
        # Slow to import, and not always needed.
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415
        from testcontainers.core.wait_strategies import LogMessageWaitStrategy  # noqa: PLC0415

        container = DockerContainer(self.image).with_command(self._command)
        # A store without a password is nobody's but this machine's.
        ports: dict[Any, Any] = {REDIS_PORT: ("127.0.0.1", None)}
        container.ports = ports
        container.waiting_for(LogMessageWaitStrategy("Ready to accept connections"))
        self._container = container
        container.start()
        # By number, never "localhost": the IPv4 and the IPv6 port differ.
        return f"redis://127.0.0.1:{container.get_exposed_port(REDIS_PORT)}"

    def stop(self) -> None:
        if self._container is not None:
            self._container.stop()
            self._container = None


def _engine() -> Any:
    _within(ENGINE_SECONDS, _ping, "no Docker engine answers")
    import docker  # type: ignore[import-untyped]  # noqa: PLC0415

    return docker.from_env(timeout=60)


def _ping() -> None:
    """By hand: the library is slow to import, and leaves a socket open when nobody answers."""
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if not host.startswith("unix://"):
        return
    with socket.socket(socket.AF_UNIX) as engine:
        engine.settimeout(ENGINE_SECONDS)
        engine.connect(host.removeprefix("unix://"))
        engine.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        if b" 200 " not in engine.recv(64):
            raise OSError("it answers, but not as an engine")


def _have_image(engine: Any, image: str) -> None:
    import docker.errors  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        engine.images.get(image)
    except docker.errors.ImageNotFound:
        _within(FETCH_SECONDS, lambda: engine.images.pull(image), f"image {image} is missing and did not come")


def _within(seconds: float, action: Callable[[], Any], failure: str) -> Any:
    """The engine's own time limits do not cover all of it, and a thread that hangs must not keep us."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="docker")
    future = pool.submit(action)
    try:
        return future.result(seconds)
    except FutureTimeoutError:
        raise NoContainerError(f"{failure} within {seconds:g} s") from None
    except Exception as error:
        raise NoContainerError(f"{failure} ({type(error).__name__})") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
