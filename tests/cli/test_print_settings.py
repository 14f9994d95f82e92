"""`-p`: effective settings with the origin of each, secrets masked, nothing started."""

import json
from pathlib import Path

import pytest

from routebook.cli.main import run


def test_it_names_the_origin_of_each(
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
    assert rows["rocketmqHome"] == ["/opt/rocketmq"]
    assert "hunter2" not in shown


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "-p", "--json", "--redis-url", "redis://:hunter2@h"]) == 0
    said = capsys.readouterr().out
    rows = {one["key"]: one for one in json.loads(said)["settings"]}
    assert rows["redis_url"] == {"key": "redis_url", "value": "redis://:********@h", "origin": "flag"}
    assert rows["bind_address"]["value"] == "127.0.0.1"


def test_a_wrong_setting_is_exit_code_2_here_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "-p", "--workers", "0"]) == 2
    assert "1 to 256" in capsys.readouterr().err
