"""Log lines: two formats, a level that follows the setting, no secret."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from routebook.errors import RoutebookError
from routebook.observability.logs import start_logs
from routebook.settings import LiveSettings, load


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("routebook")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
    logging.captureWarnings(False)


def started(**flags: str) -> tuple[LiveSettings, io.StringIO]:
    live, stream = LiveSettings(load(flags)), io.StringIO()
    start_logs(live, stream)
    return live, stream


log = logging.getLogger("routebook.test")


def test_a_text_line_has_timestamp_level_message_and_values() -> None:
    _, stream = started()
    log.info("broker changed", extra={"broker": "b-1", "cause": "new address"})
    words = stream.getvalue().split()
    assert words[0].endswith("Z")
    assert stream.getvalue().endswith('info    broker changed broker=b-1 cause="new address"\n')


def test_a_message_is_one_line_whatever_a_peer_wrote() -> None:
    _, stream = started()
    log.info("key-value k = %s", "v\n2026-01-01T00:00:00.000Z info    all is well\x1b[2J", extra={"peer": "p\r"})
    (line,) = stream.getvalue().split("\n")[:-1]
    assert line.endswith(r'key-value k = v\n2026-01-01T00:00:00.000Z info    all is well\x1b[2J peer="p\r"')


def test_json_is_one_object_a_line() -> None:
    _, stream = started(log_format="json")
    log.warning("two\nlines", extra={"count": 3, "secret_free": None})
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert fields["message"] == "two\nlines"
    assert (fields["level"], fields["count"], fields["secret_free"]) == ("warning", 3, None)


def test_the_level_follows_a_change_at_run_time() -> None:
    live, stream = started()
    log.debug("unheard")
    live.apply({"log_level": "debug"})
    log.debug("heard")
    live.apply({"log_level": "error"})
    log.warning("unheard")
    assert stream.getvalue().split()[-1] == "heard"
    assert "unheard" not in stream.getvalue()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_secret_is_written_wherever_it_comes_from(log_format: str) -> None:
    _, stream = started(
        log_format=log_format,
        admin_token='sesame"open',
        redis_url="sentinel://u:hunt%40er@a:1/m?sentinel_password=swordfish",
    )
    log.info('token sesame"open of redis://other:guessed@h:1', extra={"url": "x hunt%40er y", "also": "hunt@er"})
    try:
        raise RuntimeError("swordfish in a traceback")
    except RuntimeError:
        log.exception("failed")
    written = stream.getvalue()
    for secret in ("sesame", "hunt%40er", "hunt@er", "swordfish", "guessed"):
        assert secret not in written
    assert "in a traceback" in written


def test_libraries_log_warnings_and_errors_only() -> None:
    _, stream = started(log_level="debug")
    logging.getLogger("uvicorn.error").info("everyday")
    logging.getLogger("uvicorn.error").warning("trouble")
    assert "everyday" not in stream.getvalue()
    assert "trouble" in stream.getvalue()


PLANTED = "planted-5d1c"


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize(
    "text",
    [
        f"authorization: Bearer {PLANTED}",
        f"{{'Authorization': 'Bearer {PLANTED}'}}",
        f"[(b'authorization', b'Bearer {PLANTED}')]",
        f"ext={{'AccessKey': '{PLANTED}', 'Signature': '{PLANTED}'}}",
        f'{{"AccessKey": "{PLANTED}"}}',
        f"GET /v1/status?token={PLANTED}&x=1",
        f"admin_token={PLANTED} adminToken={PLANTED}",
    ],
)
def test_fields_of_requests_that_carry_secrets_are_masked(log_format: str, text: str) -> None:
    _, stream = started(log_format=log_format)
    log.info("a request: %s", text, extra={"shown": text})
    assert PLANTED not in stream.getvalue()
    assert "a request" in stream.getvalue()


def test_what_is_no_secret_is_not_masked() -> None:
    _, stream = started()
    text = "Lost the lease with token 7: key-value ns/key, AccessKey unknown, object=/v1/kv/ns/key"
    log.info(text)
    assert text in stream.getvalue()


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize(
    "name", ["routebook.remoting.port", "routebook.listeners.acceptor", "uvicorn.error", "asyncio"]
)
def test_an_unexpected_error_in_a_request_does_not_quote_the_request(log_format: str, name: str) -> None:
    _, stream = started(log_format=log_format)
    try:
        try:
            dict[str, str]()[PLANTED]
        except KeyError as error:
            raise ValueError(f"cannot use {PLANTED}") from error
    except ValueError:
        logging.getLogger(name).exception("failed")
    written = stream.getvalue()
    assert PLANTED not in written
    for shown in ("KeyError", "ValueError", "test_logs.py", "caused"):
        assert shown in written


def test_messages_of_our_errors_and_of_the_system_are_kept() -> None:
    _, stream = started()
    try:
        raise OSError(28, "No space left on device") from RoutebookError("The store is full.")
    except OSError:
        logging.getLogger("routebook.remoting.port").exception("failed")
    assert "No space left on device" in stream.getvalue()
    assert "The store is full." in stream.getvalue()


async def test_a_task_that_failed_is_shown_without_its_message() -> None:
    _, stream = started()

    async def fail() -> None:
        raise ValueError(PLANTED)

    task = asyncio.create_task(fail())
    await asyncio.wait({task})
    context = {"message": "Task exception was never retrieved", "exception": task.exception(), "future": task}
    asyncio.get_running_loop().default_exception_handler(context)
    assert "ValueError" in stream.getvalue()
    assert PLANTED not in stream.getvalue()


@pytest.mark.parametrize("key", ["admin_token", "client_secret"])
def test_a_secret_among_the_run_time_settings_is_not_logged(key: str) -> None:
    live, stream = started()
    live.apply({key: PLANTED})
    assert "it is ignored" in stream.getvalue()
    assert PLANTED not in stream.getvalue()
