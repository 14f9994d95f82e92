"""The store that tests run on, and how async tests run.

Async tests and fixtures are plain `async def`, run by anyio's pytest plugin (it comes with httpx and
Starlette, so it costs no dependency) on uvloop, as the service runs. No marker is needed: the hook below
gives it to every coroutine test. Async fixtures work in async tests only, and share the test's event loop.

One store server serves the whole run (`tests/support/run_store.py` chooses; the header says which and why);
every test gets a namespace of its own.
"""

import inspect
import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.run_store import KINDS, RunStore, choose_store, embedded_store
from tests.support.servers import Server, find_servers

if TYPE_CHECKING:
    from routebook.store.connection.client import StoreClient
    from routebook.store.namespace import Namespace

STORE_KEY = pytest.StashKey[RunStore]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store", choices=KINDS, default=None, help="the store to test on; fails when it cannot be had")
    parser.addoption("--every-server", action="store_true", help="each version of the embedded store on this machine")


def pytest_configure(config: pytest.Config) -> None:
    # A setting of whoever runs the tests must not leak into them; the test store has variables of its own.
    for name in [name for name in os.environ if name.startswith("ROUTEBOOK_") and not _is_for_tests(name)]:
        del os.environ[name]
    # It would hide what a command does wrong with output that is still buffered when it ends.
    os.environ.pop("PYTHONUNBUFFERED", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell's script leaves it to what runs in its background; what tests start would ignore it as well.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[STORE_KEY] = choose_store(config.getoption("--store"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`--every-server`: each test with a store runs once on each version found on this machine."""
    if metafunc.config.getoption("--every-server") and "store_url" in metafunc.fixturenames:
        metafunc.parametrize("store_url", find_servers(), indirect=True, ids=str, scope="session")


def _is_for_tests(name: str) -> bool:
    return name.startswith(("ROUTEBOOK_TEST_", "ROUTEBOOK_KUBE_")) or name == "ROUTEBOOK_REDIS_SERVER"


def pytest_report_header(config: pytest.Config) -> str:
    store = config.stash[STORE_KEY]
    return f"store: {store.kind} ({store.reason})"


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> None:
    """What `anyio_mode = auto` does, said where the other choices about tests are said."""
    if isinstance(collector, pytest.Module | pytest.Class) and collector.istestfunction(obj, name):
        inner = obj.hypothesis.inner_test if hasattr(obj, "hypothesis") else obj
        if inspect.iscoroutinefunction(inner):
            pytest.mark.anyio(obj)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The run's store. Never flush it, never reconfigure it: others use it too. Who must, starts one:
    `EmbeddedStore`.
    """
    server: Server | None = getattr(request, "param", None)
    store = embedded_store(server.path) if server else request.config.stash[STORE_KEY]
    yield store.start()
    store.stop()


@pytest.fixture
def namespace_name() -> str:
    """Of this test alone."""
    return f"t-{secrets.token_hex(6)}"


@pytest.fixture
async def client(request: pytest.FixtureRequest, store_url: str, namespace_name: str) -> AsyncIterator["StoreClient"]:
    """Open, on the run's store."""
    # Here, for tests without a store need not load the Redis client.
    from routebook.store.connection.client import StoreClient  # noqa: PLC0415
    from routebook.store.connection.url import StoreUrl  # noqa: PLC0415

    store = StoreClient(StoreUrl.parse(store_url), slot_key=f"rb:{{{namespace_name}}}:meta", timeout_ms=5000)
    await store.open()
    try:
        yield store
        if request.config.stash[STORE_KEY].kind == "url":
            await _remove_namespace(store, namespace_name)
    finally:
        await store.close()


@pytest.fixture
async def namespace(client: "StoreClient", namespace_name: str) -> "Namespace":
    from routebook.store.keys import Keys  # noqa: PLC0415
    from routebook.store.namespace import Namespace  # noqa: PLC0415
    from routebook.store.scripts import ScriptSet  # noqa: PLC0415

    return Namespace(client, Keys(namespace_name), ScriptSet.load())


async def _remove_namespace(client: "StoreClient", namespace: str) -> None:
    """A store that outlives the run is left as it was found."""
    cursor = b"0"
    while True:
        cursor, keys = await client.call("SCAN", cursor, "MATCH", f"rb:{{{namespace}}}:*", "COUNT", 1000)
        if keys:
            await client.call("UNLINK", *keys)
        if cursor == b"0":
            return
