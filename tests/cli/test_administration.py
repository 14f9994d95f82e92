"""Commands that change something: what they do, their dry run, and the names that a shell offers for them."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.cli.conftest import CommandLine
from tests.runtime.running import Running


@pytest.fixture
def broker(service: Running) -> str:
    name = f"broker-{secrets.token_hex(4)}"
    service.register(name, f"Topic-{name}")
    return name


def test_a_setting_is_read_changed_and_reset(routebook: CommandLine) -> None:
    assert routebook("settings", "get", "hold_window_ms").out == "60000\n"
    planned = routebook("settings", "set", "hold_window_ms", "30000", "--dry-run")
    assert "setting hold_window_ms  60000 (default)  30000" in planned.out
    assert routebook("settings", "get", "hold_window_ms").out == "60000\n"
    assert routebook("settings", "set", "hold_window_ms", "30000").code == 0
    assert routebook("settings", "get", "hold_window_ms", "-o", "jsonpath={.origin}").out == "run time\n"
    assert "30000 (run time)" in routebook("settings", "reset", "hold_window_ms", "--dry-run").out
    reset = routebook("settings", "reset", "hold_window_ms")
    assert (reset.code, "60000 (default)" in reset.out) == (0, True)
    again = routebook("settings", "reset", "hold_window_ms")
    assert (again.code, "nothing to reset" in again.err) == (1, True)
    newest = routebook("changes", "--kind", "settings-changed").out.splitlines()[-1]
    assert "setting hold_window_ms" in newest
    assert "file or default" in newest


def test_an_unknown_setting_gets_the_nearest_name(routebook: CommandLine) -> None:
    for words in (("get", "hold_procent"), ("reset", "hold_procent")):
        ended = routebook("settings", *words)
        assert (ended.code, "hold_percent" in ended.err) == (2, True)


def test_namespaces_are_listed(routebook: CommandLine) -> None:
    namespace = f"ns-{secrets.token_hex(4)}"
    routebook("kv", "put", namespace, "key", "value")
    assert namespace in routebook("kv", "namespaces", "-o", "name").out.splitlines()
    planned = routebook("kv", "delete", namespace, "key", "--dry-run", "--json")
    assert planned.json["changes"] == [{"what": f"key {namespace}/key", "before": "value of 5 bytes", "after": "none"}]
    assert routebook("kv", "get", namespace, "key").code == 0


def test_a_topic_is_registered_and_deleted(routebook: CommandLine, broker: str) -> None:
    topic = f"extra-{broker}"
    made = routebook("register-topic", topic, "--broker", broker, "--write-queues", "4", "--perm", "r")
    assert made.code == 0
    assert routebook("route", topic, "--no-headers").out.split()[-1] == "r-"
    planned = routebook("delete-topic", topic, "--dry-run")
    assert f"topic {topic} on {broker}" in planned.out
    assert "Nothing was changed." in planned.err
    assert routebook("route", topic).code == 0
    assert routebook("delete-topic", topic).code == 0
    assert routebook("route", topic).code == 1
    assert routebook("register-topic", topic, "--broker", "nobody").code == 1


def test_a_broker_is_removed_by_its_id(routebook: CommandLine, service: Running, broker: str) -> None:
    body = {"address": "127.0.0.12:10911", "topics": {}}
    service.put(f"/v1/clusters/demo/brokers/{broker}/1", body).raise_for_status()
    several = routebook("remove-broker", broker)
    assert (several.code, "1 (127.0.0.12:10911)" in several.err) == (2, True)
    planned = routebook("remove-broker", broker, "--id", "1", "--dry-run")
    assert f"broker demo/{broker}/1" in planned.out
    assert routebook("remove-broker", broker, "--id", "1").code == 0
    assert "Removed" in routebook("remove-broker", broker).out
    assert routebook("remove-broker", broker).code == 1


def test_write_permission_has_a_dry_run(routebook: CommandLine, broker: str) -> None:
    planned = routebook("write-permission", broker, "off", "--dry-run")
    assert "perm 6  perm 4" in planned.out
    assert routebook("route", f"Topic-{broker}", "--no-headers").out.split()[-1] == "rw"


def test_readers_are_listed_and_forgotten(routebook: CommandLine, service: Running, store_url: str) -> None:
    namespace = routebook("status", "-o", "jsonpath={.namespace}").out.strip()
    with redis.Redis.from_url(store_url) as store:
        store.hset(f"rb:{{{namespace}}}:readers", "old-lake", "1 1763475600000")
    assert routebook("readers", "list", "-o", "name").out == "old-lake\n"
    assert "old-lake" in routebook("readers", "list").out
    assert "consumed up to version 1" in routebook("readers", "forget", "old-lake", "--dry-run").out
    assert routebook("readers", "forget", "old-lake").code == 0
    assert routebook("readers", "forget", "old-lake").code == 1


def test_expiry_release_and_token_revocation_have_a_dry_run(routebook: CommandLine) -> None:
    assert routebook("expiry", "release", "--dry-run", "--json").json["count"] == 0
    name = f"ci-{secrets.token_hex(4)}"
    routebook("token", "create", name, "--role", "read")
    assert f"identity {name}" in routebook("token", "revoke", name, "--dry-run").out
    assert routebook("token", "revoke", name).code == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("route Topic-{broker}", "Topic-{broker}"),
        ("remove-broker {broker}", "{broker}"),
        ("topics --cluster de", "demo"),
        ("settings set hold_per", "hold_percent"),
        ("settings get redis_u", "redis_url"),
        ("kv get complet", "completion-ns"),
        ("kv get completion-ns k", "key-1"),
        ("status -o ya", "yaml"),
        ("settings res", "reset"),
    ],
)
def test_a_shell_offers_names_from_the_service(
    words: str, expected: str, routebook: CommandLine, service: Running, broker: str
) -> None:
    routebook("kv", "put", "completion-ns", "key-1", "value")
    line = f"routebook {words.format(broker=broker)}".split()
    environ = {
        **os.environ,
        "_ROUTEBOOK_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
        "ROUTEBOOK_URL": f"http://127.0.0.1:{service.http.rpartition(':')[2]}",
    }
    script = Path(sys.executable).with_name("routebook")
    done = subprocess.run([script], env=environ, capture_output=True, text=True, check=True)
    assert f"plain,{expected.format(broker=broker)}" in done.stdout.splitlines()


def test_completion_is_silent_without_a_service() -> None:
    environ = {
        **os.environ,
        "_ROUTEBOOK_COMPLETE": "bash_complete",
        "COMP_WORDS": "routebook --url http://127.0.0.1:1 route T",
        "COMP_CWORD": "4",
    }
    script = Path(sys.executable).with_name("routebook")
    done = subprocess.run([script], env=environ, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("", "")
