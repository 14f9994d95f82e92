"""Redis in a container, with testcontainers, if a Docker engine answers."""

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
    """No container can be started on this machine. The text gives the reason."""


def image_name(environ: Mapping[str, str] = os.environ) -> str:
    return environ.get(IMAGE_VARIABLE) or DEFAULT_IMAGE


class RedisContainer:
    """A container whose port is published on 127.0.0.1."""

    def __init__(self, image: str, command: str = "redis-server --save '' --maxmemory-policy noeviction") -> None:
        self.image = image
        self._command = command
        self._container: Any = None

    @classmethod
    def find(cls, image: str) -> "RedisContainer":
        """Raises NoContainerError within a second if no engine answers. A `docker` on the PATH may be a mere client."""
        engine = _engine()
        try:
            _have_image(engine, image)
        finally:
            engine.close()
        return cls(image)

    def start(self) -> str:
        # The clean-up container of testcontainers needs an image that is missing without a registry. `stop` cleans up.
        os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
        # Imported here because it is slow to import and seldom needed.
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415
        from testcontainers.core.wait_strategies import LogMessageWaitStrategy  # noqa: PLC0415

        container = DockerContainer(self.image).with_command(self._command)
        # On loopback only, because this store has no password.
        ports: dict[Any, Any] = {REDIS_PORT: ("127.0.0.1", None)}
        container.ports = ports
        container.waiting_for(LogMessageWaitStrategy("Ready to accept connections"))
        self._container = container
        container.start()
        # Not "localhost", whose IPv4 and IPv6 addresses would have different ports.
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
    """Asks the engine without its library, which is slow to import and leaks a socket if no engine answers."""
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if not host.startswith("unix://"):
        return
    with socket.socket(socket.AF_UNIX) as engine:
        engine.settimeout(ENGINE_SECONDS)
        engine.connect(host.removeprefix("unix://"))
        engine.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        if b" 200 " not in engine.recv(64):
            raise OSError("the answer is not that of a Docker engine")


def _have_image(engine: Any, image: str) -> None:
    import docker.errors  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        engine.images.get(image)
    except docker.errors.ImageNotFound:
        _within(FETCH_SECONDS, lambda: engine.images.pull(image), f"image {image} is missing and could not be pulled")


def _within(seconds: float, action: Callable[[], Any], failure: str) -> Any:
    """Runs the action in a thread with a timeout, because the engine's own time limits do not cover all of it."""
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
