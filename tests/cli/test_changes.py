"""`routebook changes` prints who changed what; names from peers cannot control the terminal."""

import json
import secrets

import httpx
import pytest

from routebook.cli.changes import line_of
from routebook.cli.output import json_text, print_fields, print_table, printable
from routebook.store.history import BASELINE_KINDS, KINDS, changes_between
from routebook.store.namespace import Namespace
from tests.cli.conftest import CommandLine
from tests.runtime.running import Running
from tests.support.every_kind import make_every_kind_of_change
from tests.support.waiting import wait_until

EVIL = "\x1b[2J\x9b31m\u202eevil\r"


def test_changes_are_lines_with_actor_and_values(routebook: CommandLine, service: Running) -> None:
    name = f"broker-{secrets.token_hex(4)}"
    service.register(name, "orders")
    assert routebook("settings", "set", "hold_percent", "41").code == 0
    lines = routebook("changes", "--broker", name).out.splitlines()
    assert len(lines) == 1
    assert f"broker-registered  demo/{name}/0: addr none -> addr 127.0.0.11:10911" in lines[0]
    assert "by anonymous from 127.0.0.1:" in lines[0]
    newest = routebook("changes", "--kind", "settings-changed").out.splitlines()[-1]
    assert "setting hold_percent: " in newest
    assert " -> 41  by operator from 127.0.0.1:" in newest
    assert routebook("changes", "--since", "1d", "--json", "--limit", "1").json["kind"]


def test_refusals_are_shown(routebook: CommandLine, service: Running) -> None:
    key = f"key-{secrets.token_hex(4)}"
    address, headers = f"{service.http}/v1/kv/ns/{key}", {"x-forwarded-for": "10.0.0.1"}
    refused = httpx.put(address, json={"value": "v"}, headers=headers, trust_env=False)
    assert refused.status_code == 401
    wait_until(lambda: key in routebook("changes", "--kind", "refused").out, "the refusal is in the store")
    assert f"refused  put_kv /v1/kv/ns/{key}: token-missing: " in routebook("changes", "--kind", "refused").out


def test_the_last_lines_before_a_time_are_shown_oldest_first(routebook: CommandLine, service: Running) -> None:
    name = f"broker-{secrets.token_hex(4)}"
    for topic in ("one", "two", "three"):
        service.register(name, topic)
    lines = routebook("changes", "--broker", name, "--last", "2").out.splitlines()
    assert [line.count("two") - line.count("three") for line in lines] == [1, -1]
    assert routebook("changes", "--broker", name, "--until", "2001-01-01", "--last", "2").out == ""
    assert routebook("changes", "--last", "2", "--follow").code == 2


async def test_no_kind_of_change_is_printed_as_a_raw_dictionary(namespace: Namespace) -> None:
    await make_every_kind_of_change(namespace)
    changes = await changes_between(namespace, 0, 10_000)
    assert {change.kind for change in changes} == {*KINDS, *BASELINE_KINDS}
    for change in changes:
        line = line_of({**change.fields, "ms": change.ms, "version": change.version, "kind": change.kind})
        assert not set(line) & set("{}'"), line


def test_no_change_is_an_answer_in_words(routebook: CommandLine) -> None:
    found = routebook("changes", "--actor", "an-actor-without-changes")
    assert (found.code, found.out, found.err) == (0, "", "No change in the history matches.\n")
    assert routebook("changes", "--actor", "an-actor-without-changes", "--json").err == ""


def test_a_wrong_filter_is_an_error(routebook: CommandLine) -> None:
    ended = routebook("changes", "--kind", "nonsense")
    assert (ended.code, ended.out) == (2, "")
    assert "kind is 'nonsense'" in ended.err


def test_names_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic",), [(EVIL,), ("a\nb",)])
    print_fields([("topic", EVIL)])
    entry = {"ms": 1, "version": 1, "kind": "kv-deleted", "namespace": EVIL, "key": EVIL, "actor": EVIL}
    print(line_of(entry))
    print(json_text({EVIL: EVIL}))
    print(printable(EVIL))
    shown = capsys.readouterr().out
    assert not set(shown) & {"\x1b", "\x9b", "\u202e", "\r"}
    assert "evil" in shown
    assert "a\\nb" in shown
    assert json.loads(json_text({EVIL: EVIL})) == {EVIL: EVIL}


def test_errors_of_the_service_cannot_control_the_terminal(routebook: CommandLine) -> None:
    ended = routebook("route", EVIL)
    assert ended.code == 1
    assert not set(ended.err) & {"\x1b", "\x9b", "\u202e", "\r"}
