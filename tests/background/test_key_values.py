"""Apache's key-value file, and the log of all key-values."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from routebook.background.kv_file import ENTRIES_PER_PART, import_kv_file, read_kv_file
from routebook.background.leader import FIRST_KEY_VALUES_AFTER_S, KEY_VALUES_PERIOD_S, KeyValueLog
from routebook.errors import SettingsError
from tests.support.in_process import CALLER, running_worker


def written(folder: Path, text: str) -> Path:
    path = folder / "kvConfig.json"
    path.write_text(text)
    return path


def test_apaches_file_is_read(tmp_path: Path) -> None:
    table = {"ORDER_TOPIC_CONFIG": {"orders": "broker-a:8"}, "empty": {}, "odd": {"number": 1, "nothing": None}}
    path = written(tmp_path, json.dumps({"configTable": table}))
    assert read_kv_file(path) == {
        "ORDER_TOPIC_CONFIG": {"orders": "broker-a:8"},
        "empty": {},
        "odd": {"number": "1"},
    }


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_file_has_no_key_values(tmp_path: Path, text: str) -> None:
    assert read_kv_file(written(tmp_path, text)) == {}


def test_a_missing_file_has_no_key_values(tmp_path: Path) -> None:
    assert read_kv_file(tmp_path / "absent.json") == {}


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"configTable": []}', '{"configTable": {"a": 1}}', "\x00"])
def test_a_broken_file_ends_the_start_and_the_error_shows_the_expected_form(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"kv_config_path names .*kvConfig.json") as refusal:
        read_kv_file(written(tmp_path, text))
    assert "configTable" in refusal.value.advice


async def test_only_the_first_start_imports_the_file(
    store_url: str, namespace_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, json.dumps({"configTable": {"ns": {"key": "from the file"}}}))
    async with running_worker(store_url, namespace_name) as worker:
        with caplog.at_level(logging.INFO):
            await import_kv_file(worker.namespace, str(path), worker.name)
        assert "Imported 1 key-values" in caplog.text
        await worker.registry.put_kv("ns", "key", "changed later", CALLER)
        await import_kv_file(worker.namespace, str(path), worker.name)
        assert worker.registry.kv_value("ns", "key") == "changed later"


async def test_workers_that_start_together_import_a_long_file_once(
    store_url: str, namespace_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = {f"key-{n}": f"value-{n}" for n in range(3 * ENTRIES_PER_PART + 1)}
    path = written(tmp_path, json.dumps({"configTable": {"ns": values}}))
    async with running_worker(store_url, namespace_name) as worker:
        with caplog.at_level(logging.INFO):
            await asyncio.gather(*(import_kv_file(worker.namespace, str(path), worker.name) for _ in range(3)))
        await worker.registry.wait_for_version(len(values))
        assert worker.replica.table.kv == {"ns": values}
        assert worker.replica.version == len(values)
        counts = [int(message.split()[1]) for message in caplog.messages if message.startswith("Imported")]
        assert sum(counts) == len(values)


async def test_without_a_file_nothing_is_imported(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await import_kv_file(worker.namespace, "", worker.name)
        assert worker.replica.version == 0


async def test_all_key_values_are_logged_after_a_minute_and_then_every_ten(
    store_url: str, namespace_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await worker.registry.put_kv("ns", "plain", "a-value", CALLER)
        await worker.registry.put_kv("ns", "db.password", "another-value", CALLER)
        log = KeyValueLog(worker.replica)

        def lines_at(now: float) -> list[str]:
            caplog.clear()
            with caplog.at_level(logging.INFO, logger="routebook.background.leader"):
                log.log_when_due(now)
            return caplog.messages

        assert lines_at(0) == []
        assert lines_at(FIRST_KEY_VALUES_AFTER_S - 1) == []
        password, plain = lines_at(FIRST_KEY_VALUES_AFTER_S)
        assert password.startswith("key-value ns/db.password: value with sha256 ")
        assert plain.startswith("key-value ns/plain: value with sha256 ")
        assert "-value" not in (password + plain).replace("key-value", "")
        assert lines_at(FIRST_KEY_VALUES_AFTER_S + 1) == []
        assert len(lines_at(FIRST_KEY_VALUES_AFTER_S + KEY_VALUES_PERIOD_S)) == 2
