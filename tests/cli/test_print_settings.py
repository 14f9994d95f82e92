"""`-p`: effective settings with the origin of each, secrets masked, nothing started."""

import asyncio
import json
from pathlib import Path

import pytest

from routebook.cli.main import run
from routebook.model.names import Caller
from routebook.settings.catalogue import all_settings
from routebook.store.administration import set_setting
from routebook.store.namespace import Namespace
from routebook.store.workers import open_namespace
from tests.runtime.running import run as run_process


def test_the_origin_of_each_setting_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=9877\nrocketmqHome=/opt/rocketmq\ntls.key.password=hunter2\n")
    monkeypatch.setenv("ROUTEBOOK_HTTP_PORT", "9080")
    assert run(["serve", "-c", str(file), "--admin-token", "hunter2", "-p"]) == 0
    shown = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line}
    assert rows["remoting_port"] == ["9877", "file"]
    assert rows["http_port"] == ["9080", "variable"]
    assert rows["admin_token"] == ["********", "flag"]
    assert rows["bind_address"] == ["0.0.0.0", "default"]
    assert rows["rocketmqHome"] == ["/opt/rocketmq", "nothing", "is", "read", "from", "there"]
    assert rows["tls.key.password"] == ["********", "unknown"]
    assert "hunter2" not in shown


def test_settings_can_be_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "-p", "--json", "--redis-url", "redis://:hunter2@127.0.0.1:1"]) == 0
    printed = capsys.readouterr()
    rows = {one["key"]: one for one in json.loads(printed.out)["settings"]}
    assert rows["redis_url"] == {"key": "redis_url", "value": "redis://:********@127.0.0.1:1", "origin": "flag"}
    assert rows["bind_address"]["value"] == "127.0.0.1"
    # An unreachable store must not prevent the output.
    assert "The run-time settings are missing" in printed.err
    assert "hunter2" not in printed.out + printed.err


async def test_run_time_settings_are_included(
    namespace: Namespace, store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    await open_namespace(namespace)
    await set_setting(namespace, "hold_percent", "55", "55", caller=Caller("test"))
    flags = ("--redis-url", store_url, "--namespace", namespace_name, "--hold-minimum", "9")
    done = await asyncio.to_thread(run_process, "serve", "-p", "--json", *flags, cwd=tmp_path)
    rows = {one["key"]: one for one in json.loads(done.stdout)["settings"]}
    assert rows["hold_percent"] == {"key": "hold_percent", "value": "55", "origin": "run time"}
    assert rows["hold_minimum"]["origin"] == "flag"


def test_a_wrong_setting_is_exit_code_2_here_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "-p", "--workers", "0"]) == 2
    assert "1 to 256" in capsys.readouterr().err


def test_every_setting_is_shown_with_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("shutdownWaitTimeSeconds=20\ntls.server.keyPassword=hunter2\nserverWorkerThreads=4\n")
    monkeypatch.setenv("ROCKETMQ_SERIALIZE_TYPE", "ROCKETMQ")
    assert run(["serve", "-c", str(file), "-p", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    rows = {one["key"]: (one["value"], one["origin"]) for one in shown["settings"]}
    assert rows.keys() == all_settings().keys()
    assert rows["drain_ms"] == ("20000", "file")
    assert rows["tls_key_password"] == ("********", "file")
    assert rows["serialize_type"] == ("ROCKETMQ", "RocketMQ's variable")
    assert rows["wait_seconds_for_service"] == ("45", "default")
    assert shown["kept_properties"] == {"serverWorkerThreads": "4"}
