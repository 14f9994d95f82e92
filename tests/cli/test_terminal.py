"""On terminals of 80 and 200 columns: nothing is wider than the terminal, and questions are asked."""

import secrets

import pytest
from rich.cells import cell_len

from tests.cli.conftest import CommandLine
from tests.cli.terminal import run_in_terminal
from tests.runtime.running import Running

WIDTHS = (80, 200)


@pytest.fixture
def url(service: Running) -> str:
    return f"http://127.0.0.1:{service.http.rpartition(':')[2]}"


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["serve", "--help-all"],
        ["kv", "put", "--help"],
        ["settings", "list"],
        ["kv", "list", "wide"],
        ["kv", "namespaces"],
        ["readers", "list"],
        ["token", "list"],
        ["context", "list"],
        ["status"],
        ["expiry", "status"],
        ["topics"],
        ["brokers"],
        ["clusters"],
    ],
    ids=" ".join,
)
def test_output_fits_the_terminal(words: list[str], columns: int, routebook: CommandLine, url: str) -> None:
    routebook("kv", "put", "wide", "a-key-" + "x" * 60, "a value of many words " * 12)
    routebook("context", "set", "prod", "--url", ",".join(f"http://host-{number}.example:8080" for number in range(9)))
    shown = run_in_terminal(*words, columns=columns, env={"ROUTEBOOK_URL": url})
    assert shown.code in (0, 1), shown.text
    assert max(cell_len(line) for line in shown.lines) <= columns


def test_help_uses_the_width_of_the_terminal() -> None:
    narrow = run_in_terminal("serve", "--help", columns=80)
    broad = run_in_terminal("serve", "--help", columns=200)
    assert max(map(len, narrow.lines)) <= 80 < max(map(len, broad.lines)) <= 120
    assert len(broad.lines) < len(narrow.lines)


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_deletion_shows_what_would_change_and_asks(
    columns: int, routebook: CommandLine, service: Running, url: str
) -> None:
    name = f"broker-{secrets.token_hex(4)}"
    service.register(name, f"Topic-{name}")
    words = ("delete-topic", f"Topic-{name}", "--url", url)
    refused = run_in_terminal(*words, columns=columns, answers={"[y/N]": "n"})
    assert refused.code == 1
    assert f"topic Topic-{name} on {name}" in refused.text
    assert "perm 6, 8 read, 8 write" in refused.text
    assert "Nothing was changed." in refused.text
    assert routebook("route", f"Topic-{name}").code == 0
    accepted = run_in_terminal(*words, columns=columns, answers={"[y/N]": "y"})
    assert (accepted.code, "Deleted" in accepted.text) == (0, True)
    assert routebook("route", f"Topic-{name}").code == 1


def test_yes_answers_the_question_beforehand(routebook: CommandLine, url: str) -> None:
    routebook("kv", "put", "asked", "key", "value")
    shown = run_in_terminal("kv", "delete", "asked", "key", "--yes", "--url", url, columns=80)
    assert (shown.code, "[y/N]" in shown.text) == (0, False)


def test_nothing_is_asked_when_nothing_would_change(url: str) -> None:
    shown = run_in_terminal("expiry", "release", "--url", url, columns=80)
    assert (shown.code, "[y/N]" in shown.text) == (0, False)
