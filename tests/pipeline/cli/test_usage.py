"""What is refused before anything is started, and how it is said."""

import json
from pathlib import Path

import pytest

from routebook.cli.main import run as routebook
from routebook_pipeline.answers.catalogue import QUESTIONS
from routebook_pipeline.cli.ingest import command as ingest
from routebook_pipeline.cli.run import UPKEEP
from routebook_pipeline.source.options import SourceOptions


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    assert routebook(["pipeline", *arguments]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "availability", "--from", "2026-05-01T12:00"], "has no zone"),
        (["run", "availability", "--to", "tomorrow"], "-2h"),
        (
            ["run", "availability", "--from", "2026-05-02T00:00Z", "--to", "2026-05-01T00:00Z"],
            "Exchange --from and --to",
        ),
        (["run", "availability", "--by", "planet"], "cluster, group, seat"),
        (["run", "availability", "--threshold", "objectif=1"], "objective (0.9995)"),
        (["run", "availability", "--json", "--csv"], "One form of answer"),
        (["run", "availability", "--parquet", "a", "--out", "b"], "names its file itself"),
        (["run", "compact", "--csv"], "--csv would be ignored: `run compact` is about the whole lake"),
        (["run", "check", "--fail"], "--fail would be ignored"),
        (
            ["run", "vacuum", "--from", "-2d", "--by", "seat", "--threshold", "objective=0.9995"],
            "--from, --by, --threshold would be ignored: `run vacuum` is about the whole lake",
        ),
        (["run", "rebase", "--allow-partial"], "--allow-partial would be ignored"),
        (["run", "compact", "--master", "local[1]", "--conf", "spark.x=y"], "--master, --conf would be ignored"),
        (["run", "vacuum", "--conf", "spark.x=y"], "`run vacuum` starts no Spark"),
        (["run", "check", "--url-env", "OTHER"], "`run check` does not ask the store"),
        (["run", "availability", "--conf", "memory=1g"], "spark.some.key=value"),
        (["run", "availability", "--namespace", "a b"], "namespace"),
        (["run", "availability", "--url-env", "redis://:secret@localhost"], "name of a variable"),
        (["run", "availability", "--nonsense"], "No such option"),
        (["run"], "Missing argument"),
        (["route-at", "T", "--at", "now", "--version", "3"], "not both"),
        (["route-at", "T", "--version", "0"], "0 is not in the range"),
        (["route-at", "T", "--era", "1"], "--era goes with --version"),
        (["route-at", "T", "--version", "3", "--allow-partial"], "it is for a time (--at)"),
        (["report"], "--out"),
        (["ingest", "--trigger", "30"], "a number and one of"),
        (["ingest", "--starting", "yesterday"], "yesterday"),
        (["ingest", "--max-entries", "0"], "0 is not in the range"),
        (["ingest", "--once", "--threshold", "objective=0.99"], "Add --refresh"),
        (["ingest", "--once", "--trigger", "30s"], "--trigger would be ignored"),
        (["nightly", "--out", "page.html", "--allow-partial"], "--allow-partial would be ignored"),
        (["ingest", "--once", "--allow-partial"], "An ingest reads all there is"),
        (["ingest", "--allow-partial"], "An ingest reads all there is"),
        (["doctor", "--url-env", "redis://:secret@localhost"], "name of a variable"),
        (["doctor", "--namespace", "a b"], "namespace"),
        (["export", "--url-env", "redis://:secret@localhost"], "name of a variable"),
        (["nonsense"], "No such command"),
    ],
)
def test_wrong_usage_says_what_is_allowed(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = ["--lake", str(tmp_path)] if len(arguments) > 1 and arguments[0] != "export" else []
    lake += ["--out", str(tmp_path / "f")] if arguments[0] == "export" else []
    shown = refused(capsys, *arguments, *lake)
    assert said in shown
    assert "secret" not in shown


def test_an_unknown_question_lists_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = refused(capsys, "run", "uptime", "--lake", str(tmp_path))
    for name in [*QUESTIONS, *UPKEEP]:
        assert name in shown


def test_without_a_lake_it_says_how_to_name_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ROUTEBOOK_LAKE" in refused(capsys, "run", "availability")


def test_a_lake_that_is_not_there_is_unreachable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Found before Spark is started."""
    shown = refused(capsys, "run", "availability", "--lake", str(tmp_path / "nowhere"), code=3)
    assert "nowhere" in shown
    assert "ingest" in shown


def test_help_names_every_question_and_its_levels(capsys: pytest.CaptureFixture[str]) -> None:
    assert routebook(["pipeline", "run", "--help"]) == 0
    shown = capsys.readouterr().out
    for question in QUESTIONS.values():
        assert f"{question.name} " in shown
    assert "cluster, group, seat" in shown


@pytest.mark.parametrize(
    ("address", "code"), [("redis://127.0.0.1:1", 3), ("redis://", 2), ("http://:secret@127.0.0.1:1", 2)]
)
def test_doctor_tells_an_address_that_is_none_from_one_where_nobody_is(
    address: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROUTEBOOK_REDIS_URL", address)
    assert routebook(["pipeline", "doctor", "--json"]) == code
    shown = capsys.readouterr().out
    (store,) = [finding for finding in json.loads(shown) if finding["subject"] == "store"]
    assert (store["level"], store["code"]) == ("error", code)
    assert "secret" not in shown


def test_a_batch_is_as_large_as_the_source_would_have_it() -> None:
    assert {one.name: one.default for one in ingest.params}["max_entries"] == SourceOptions.max_entries_per_trigger


@pytest.mark.parametrize(
    "name", ["ingest", "backfill", "route-at", "run", "report", "nightly", "export", "package", "doctor"]
)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert routebook(["pipeline", name, "--help"]) == 0
    assert "--" in capsys.readouterr().out
