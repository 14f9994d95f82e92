"""Which service a command reaches: several addresses, contexts, tokens, and options before and after the subcommand."""

import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from routebook.cli.main import run
from tests.cli.conftest import CommandLine
from tests.runtime.running import Running
from tests.support.ports import free_port

ADMIN_TOKEN = "first-token"


@contextmanager
def closing_server() -> Iterator[tuple[str, list[bytes]]]:
    """Accepts connections, reads a request, and closes without an answer: a worker that dies while it answers."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    requests.append(connection.recv(65536))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", requests
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.fixture
def url(service: Running) -> str:
    return f"http://127.0.0.1:{service.http.rpartition(':')[2]}"


@pytest.fixture(scope="module")
def guarded(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service on all addresses with a token."""
    flags = ("--redis-url", store_url, "--namespace", f"t-guarded-{free_port()}", "--bind-address", "0.0.0.0")
    env = {"ROUTEBOOK_ADMIN_TOKEN": ADMIN_TOKEN}
    with Running("serve", *flags, folder=tmp_path_factory.mktemp("guarded"), env=env) as service:
        yield service.http.replace("0.0.0.0", "127.0.0.1")


def test_reads_and_writes_use_the_next_address_when_one_refuses_connections(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    several = f"http://127.0.0.1:{free_port()},{url}"
    assert CommandLine(capsys, several)("status", "-o", "jsonpath={.complete}").out == "true\n"
    assert CommandLine(capsys, several)("kv", "put", "failover", "key", "value").code == 0
    assert CommandLine(capsys, several)("kv", "get", "failover", "key").out == "value\n"


def test_a_read_is_repeated_elsewhere_and_a_write_is_not(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with closing_server() as (closing, requests):
        both = CommandLine(capsys, f"{closing},{url}")
        assert both("kv", "list", "failover-2", "--json").code == 1  # the second address answered: no such namespace
        assert len(requests) == 1
        written = both("kv", "put", "failover-2", "key", "value")
        assert (written.code, len(requests)) == (3, 2)
        assert "No answer from" in written.err
    assert CommandLine(capsys, url)("kv", "get", "failover-2", "key").code == 1


def test_a_read_is_retried_at_the_only_address(capsys: pytest.CaptureFixture[str]) -> None:
    with closing_server() as (closing, requests):
        assert CommandLine(capsys, closing)("status").code == 3
        assert len(requests) == 3


def test_the_timeout_ends_a_command_that_gets_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        ended = CommandLine(capsys, silent_url)("status", "--timeout", "300ms")
    assert ended.code == 3
    assert "timed out" in ended.err


@pytest.mark.parametrize("words", [["--url", "URL", "kv", "list"], ["kv", "--url", "URL", "list"]])
def test_options_are_accepted_at_every_level(words: list[str], url: str, capsys: pytest.CaptureFixture[str]) -> None:
    CommandLine(capsys, url)("kv", "put", "levels", "key", "value")
    words = [url if word == "URL" else word for word in words]
    assert run(["-o", "name", *words, "levels"]) == 0
    assert capsys.readouterr().out == "key\n"
    # The last one counts.
    assert run(["--url", "http://127.0.0.1:1", "kv", "list", "levels", "--url", url]) == 0


def test_an_option_before_a_command_that_does_not_use_it_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--url", "http://127.0.0.1:1", "certs"]) == 2
    assert "`certs` has no option --url" in capsys.readouterr().err


def test_a_context_names_address_and_token(
    guarded: str, contexts_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["context", "set", "prod", "--url", guarded, "--token", ADMIN_TOKEN, "--timeout", "5s"]) == 0
    assert run(["context", "set", "other", "--url", "http://127.0.0.1:1"]) == 0
    assert stat.S_IMODE(contexts_file.stat().st_mode) == 0o600
    assert run(["token", "list", "--context", "prod"]) == 0
    assert run(["context", "use", "prod"]) == 0
    assert run(["token", "list"]) == 0
    capsys.readouterr()
    assert run(["context", "list"]) == 0
    shown = capsys.readouterr().out
    assert f"*  prod   {guarded}" in shown
    assert ADMIN_TOKEN not in shown
    # A context named on the line is stronger than a variable; one in use is weaker.
    monkeypatch.setenv("ROUTEBOOK_URL", "http://127.0.0.1:1")
    assert run(["token", "list"]) == 3
    assert run(["token", "list", "--context", "prod"]) == 0
    assert run(["context", "delete", "prod"]) == 0
    assert run(["context", "list", "-o", "name"]) == 0
    assert capsys.readouterr().out.endswith("other\n")


def test_the_token_of_the_context_in_use_is_not_sent_to_another_service(
    guarded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["context", "set", "prod", "--url", "http://127.0.0.1:1", "--token", ADMIN_TOKEN])
    run(["context", "use", "prod"])
    assert run(["token", "list", "--url", guarded]) == 2
    assert "it has none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("current = 1", "is not a file of contexts"),
        ("[contexts.a]\nport = 1", "port = 1"),
        ("[contexts.a]\ninsecure = 'yes'", "insecure"),
        ("[contexts", "cannot be read"),
        ("current = 'gone'", "There is no context 'gone'"),
    ],
)
def test_a_broken_file_of_contexts_is_wrong_usage(
    text: str, message: str, contexts_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contexts_file.parent.mkdir()
    contexts_file.write_text(text)
    assert run(["status"]) == 2
    assert message in capsys.readouterr().err


def test_a_token_that_is_missing_wrong_or_not_allowed_is_three_messages(
    guarded: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = CommandLine(capsys, guarded)
    reader = admin("token", "create", "reader", "--role", "read", "--replace", "--token", ADMIN_TOKEN).out.strip()
    missing = admin("token", "list")
    wrong = admin("token", "list", "--token", "rb_wrong")
    monkeypatch.setenv("ROUTEBOOK_TOKEN", reader)
    not_allowed = admin("token", "list")
    assert [ended.code for ended in (missing, wrong, not_allowed)] == [2, 2, 2]
    assert "it has none" in missing.err
    assert "Pass one with --token" in missing.err
    assert "The token is wrong" in wrong.err
    assert "The token came from --token" in wrong.err
    assert "has the role read; this request needs admin" in not_allowed.err
    assert "The token came from the variable ROUTEBOOK_TOKEN" in not_allowed.err
    for ended in (missing, wrong, not_allowed):
        assert "Authorization" not in ended.err


def test_a_test_certificate_says_what_to_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Running("up", "--tls-mode", "enforcing", folder=tmp_path) as service:
        url = "https://" + service.http.partition("://")[2]
        refused = CommandLine(capsys, url)("status")
        assert refused.code == 3
        assert "--cacert FILE" in refused.err
        assert "--insecure" in refused.err
        assert CommandLine(capsys, url)("status", "--insecure").code == 0
        assert run(["certs", "--out", str(tmp_path / "other")]) == 0
        other = tmp_path / "other" / "ca.pem"
        wrong = CommandLine(capsys, url)("status", "--cacert", str(other))
        assert f"No authority in {other} has signed the certificate" in wrong.err
        plain = CommandLine(capsys, url.replace("https:", "http:"))("status")
        assert "use https:// in --url" in plain.err
