"""docs/pipeline-commands.md documents every command, option and Spark setting, and its recipe works."""

import json
import re
from pathlib import Path

import click
import pytest

from routebook.cli.main import run as routebook
from routebook_pipeline.cli.main import pipeline
from routebook_pipeline.cli.run import MAINTENANCE
from routebook_pipeline.session import QUICK_START, settings
from tests.architecture.sources import ROOT
from tests.pipeline.source.streams import URL_ENV, Stream

DOCUMENT = (ROOT / "docs" / "pipeline-commands.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL))
FOR_THE_CORES = "spark.sql.shuffle.partitions"


def documented_settings(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `(spark\.[\w.]+)` \| (.+?) \| \S", text, re.MULTILINE))


def in_code(chosen: dict[str, str]) -> dict[str, str]:
    return {name: "twice the cores" if name == FOR_THE_CORES else f"`{value}`" for name, value in chosen.items()}


def test_every_setting_of_the_session_is_documented_with_its_value_and_reason() -> None:
    everywhere, _, besides = SECTIONS["Spark's settings"].partition("On one machine")
    assert documented_settings(everywhere) == in_code(settings("spark://head:7077"))
    assert documented_settings(everywhere) | documented_settings(besides) == in_code(settings("local[2]"))
    assert settings("local[3]")[FOR_THE_CORES] == "6"
    assert f"`{QUICK_START}`" in SECTIONS["Spark's settings"]


def command_of(name: str) -> click.Command:
    command = pipeline.get_command(click.Context(pipeline), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", pipeline.list_commands(click.Context(pipeline)))
def test_every_command_and_option_is_documented(name: str) -> None:
    assert f"`{name}" in DOCUMENT
    flags = [flag for one in command_of(name).params if isinstance(one, click.Option) for flag in one.opts]
    assert [flag for flag in flags if not re.search(rf"`[^`\n]*{flag}\b", DOCUMENT)] == []


def test_every_maintenance_command_is_documented() -> None:
    assert [name for name in MAINTENANCE if f"`run {name}`" not in DOCUMENT] == []


def test_the_documented_defaults_of_an_ingest_are_those_of_the_command() -> None:
    documented = dict(re.findall(r"^\| `--([\w-]+)` \| `(\w+)` \|", SECTIONS["Continuous ingest"], re.MULTILINE))
    params = command_of("ingest").params
    defaults = {one.name: str(one.default) for one in params if one.name and one.default is not None}
    assert {name: defaults[name.replace("-", "_")] for name in documented} == documented
    assert set(documented) == {"trigger", "max-entries", "on-loss", "starting"}


def test_all_exit_codes_are_documented() -> None:
    codes = re.findall(r"^\| (\d+) \| ", SECTIONS["Exit codes"], re.MULTILINE)
    assert codes == ["0", "1", "2", "3", "4", "130"]


def test_the_recipe_for_files_writes_the_same_file_as_export(
    store_url: str, namespace_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recipe,) = re.findall(r"^```python\n(.*?)^```", SECTIONS["Files"], re.MULTILINE | re.DOTALL)
    monkeypatch.setenv(URL_ENV, store_url)
    monkeypatch.chdir(tmp_path)
    with Stream(store_url, namespace_name) as stream:
        stream.fill(2_500)
        exec(recipe.replace("{default}", f"{{{namespace_name}}}"), {})
        assert routebook(["pipeline", "export", "--namespace", namespace_name, "--out", "exported.jsonl"]) == 0
    lines = (tmp_path / "changes.jsonl").read_text()
    assert lines == (tmp_path / "exported.jsonl").read_text()
    assert len([json.loads(line) for line in lines.splitlines()]) == 2_500
