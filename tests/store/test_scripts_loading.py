"""Expanding the includes of scripts, and running scripts that the store has lost."""

from pathlib import Path

import pytest

from routebook.errors import ScriptError
from routebook.store.administration import put_kv
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from routebook.store.reads import read_groups
from routebook.store.workers import open_namespace
from tests.support.scripts import CALLER


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_an_include_is_expanded_once(tmp_path: Path) -> None:
    write(tmp_path, "include/one.lua", "local one = 1\n")
    write(tmp_path, "include/two.lua", "-- include: one\nlocal two = 2\n")
    write(tmp_path, "command.lua", "-- include: one\n-- include: two\nreturn one + two\n")
    assert ScriptSet.load(tmp_path)["command"].source.count("local one = 1") == 1


def test_headers_are_not_sent(tmp_path: Path) -> None:
    write(tmp_path, "command.lua", "--[[\nA long header.\n]]\nreturn 1\n")
    assert "header" not in ScriptSet.load(tmp_path)["command"].source


def test_a_missing_include_names_the_chain(tmp_path: Path) -> None:
    write(tmp_path, "include/one.lua", "-- include: nowhere\n")
    write(tmp_path, "command.lua", "-- include: one\n")
    with pytest.raises(ScriptError, match="command → one → nowhere"):
        ScriptSet.load(tmp_path)


def test_a_circular_include_names_the_chain(tmp_path: Path) -> None:
    write(tmp_path, "include/one.lua", "-- include: two\n")
    write(tmp_path, "include/two.lua", "-- include: one\n")
    write(tmp_path, "command.lua", "-- include: one\n")
    with pytest.raises(ScriptError, match="command → one → two → one"):
        ScriptSet.load(tmp_path)


def test_a_folder_without_scripts_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="holds no Lua script"):
        ScriptSet.load(tmp_path)


def test_a_changed_script_changes_the_fingerprint(tmp_path: Path) -> None:
    write(tmp_path, "command.lua", "return 1\n")
    before = ScriptSet.load(tmp_path).fingerprint
    write(tmp_path, "command.lua", "return 2\n")
    assert ScriptSet.load(tmp_path).fingerprint != before


async def test_scripts_that_the_store_lost_are_sent_again() -> None:
    with EmbeddedStore(None, port=0) as store:
        client = StoreClient(StoreUrl.parse(store.url), slot_key="rb:{t}:meta", timeout_ms=5000)
        await client.open()
        namespace = Namespace(client, Keys("t"), ScriptSet.load())
        await open_namespace(namespace)
        for n in range(3):
            await client.call("SCRIPT", "FLUSH")
            await put_kv(namespace, "ns", f"k{n}", "v", caller=CALLER)
            await client.call("SCRIPT", "FLUSH")
            assert (await read_groups(namespace, {"unknown": None}))["unknown"].group is None
        await client.close()
