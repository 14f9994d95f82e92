"""Fixtures of all tests: the store and a namespace in it. Also how async tests run.

Async tests and fixtures are plain `async def` without a marker. The pytest plugin of anyio, which httpx and Starlette
require anyway, runs them on uvloop, as the service runs. Async fixtures can be used in async tests only, and share the
event loop of the test.

One store server serves the whole run. `tests/support/run_store.py` chooses it, and the header of the run names it with
the reason. Each test has a namespace of its own.
"""

import inspect
import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.figures import Figures
from tests.support.run_store import KINDS, RunStore, choose_store, embedded_store
from tests.support.servers import Server, find_servers

if TYPE_CHECKING:
    from routebook.store.connection.client import StoreClient
    from routebook.store.namespace import Namespace

STORE_KEY = pytest.StashKey[RunStore]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store", choices=KINDS, default=None, help="the store to test on; a run without it fails")
    parser.addoption(
        "--every-server", action="store_true", help="test on each version of a store server on this machine"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Settings in the environment must not affect the tests. The tests have variables of their own.
    for name in [name for name in os.environ if name.startswith("ROUTEBOOK_") and not _is_for_tests(name)]:
        del os.environ[name]
    # With it, faults of commands whose output is still buffered when they exit would not show.
    os.environ.pop("PYTHONUNBUFFERED", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell script starts background jobs this way, and the processes that tests start would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[STORE_KEY] = choose_store(config.getoption("--store"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With `--every-server`, each test that uses a store runs once on each version found on this machine."""
    if metafunc.config.getoption("--every-server") and "store_url" in metafunc.fixturenames:
        metafunc.parametrize("store_url", find_servers(), indirect=True, ids=str, scope="session")


def _is_for_tests(name: str) -> bool:
    return name.startswith(("ROUTEBOOK_TEST_", "ROUTEBOOK_KUBE_")) or name == "ROUTEBOOK_REDIS_SERVER"


def pytest_report_header(config: pytest.Config) -> str:
    store = config.stash[STORE_KEY]
    return f"store: {store.kind} ({store.reason})"


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> None:
    """Marks coroutine tests, as the option `anyio_mode = auto` would."""
    if isinstance(collector, pytest.Module | pytest.Class) and collector.istestfunction(obj, name):
        function = obj.hypothesis.inner_test if hasattr(obj, "hypothesis") else obj
        if inspect.iscoroutinefunction(function):
            pytest.mark.anyio(obj)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The run's store. Other tests use it at the same time, so do not flush or reconfigure it. A test that has to do so
    starts an `EmbeddedStore`.
    """
    server: Server | None = getattr(request, "param", None)
    store = embedded_store(server.path) if server else request.config.stash[STORE_KEY]
    yield store.start()
    store.stop()


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figures:
    """Reports what the test measured, and compares it with what is required."""
    return Figures(request.node.nodeid)


@pytest.fixture
def seed(figure: Figures) -> int:
    """The seed of the test's random choices; `make chaos ARGS="--row N --seed S"` repeats a run."""
    return figure.choose_seed()


@pytest.fixture
def namespace_name() -> str:
    """A namespace that no other test uses."""
    return f"t-{secrets.token_hex(6)}"


@pytest.fixture
async def client(request: pytest.FixtureRequest, store_url: str, namespace_name: str) -> AsyncIterator["StoreClient"]:
    """An open client of the run's store."""
    # Imported here, so that tests without a store do not load the Redis client.
    from routebook.store.connection.client import StoreClient  # noqa: PLC0415
    from routebook.store.connection.url import StoreUrl  # noqa: PLC0415

    store = StoreClient(StoreUrl.parse(store_url), slot_key=f"rb:{{{namespace_name}}}:meta", timeout_ms=20_000)
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
    from routebook.store.namespace import Namespace, ScriptSet  # noqa: PLC0415

    return Namespace(client, Keys(namespace_name), ScriptSet.load())


async def _remove_namespace(client: "StoreClient", namespace: str) -> None:
    """Deletes what the test wrote to a store that is not ours."""
    cursor = b"0"
    while True:
        cursor, keys = await client.call("SCAN", cursor, "MATCH", f"rb:{{{namespace}}}:*", "COUNT", 1000)
        if keys:
            await client.call("UNLINK", *keys)
        if cursor == b"0":
            return
