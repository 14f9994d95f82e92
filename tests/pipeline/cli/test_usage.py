"""Wrong usage is refused before anything starts, with advice."""

import json
from pathlib import Path

import pytest

from routebook.cli.main import run as routebook
from routebook_pipeline.answers.catalogue import QUESTIONS
from routebook_pipeline.cli.ingest import command as ingest
from routebook_pipeline.cli.run import MAINTENANCE
from routebook_pipeline.source.options import SourceOptions


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    assert routebook(["pipeline", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["run", "availability", "--from", "2026-05-01T12:00"], "has no zone"),
        (["run", "availability", "--to", "tomorrow"], "-2h"),
        (
            ["run", "availability", "--from", "2026-05-02T00:00Z", "--to", "2026-05-01T00:00Z"],
            "Exchange --from and --to",
        ),
        (["run", "availability", "--by", "planet"], "cluster, group, seat"),
        (["run", "availability", "--threshold", "objectif=1"], "objective (0.9995)"),
        (["run", "availability", "--json", "--csv"], "Only one form of answer"),
        (["run", "availability", "--parquet", "a", "--out", "b"], "names its file itself"),
        (["run", "compact", "--csv"], "--csv would be ignored: `run compact` is about the whole lake"),
        (["run", "check", "--fail"], "--fail would be ignored"),
        (
            ["run", "vacuum", "--from", "-2d", "--by", "seat", "--threshold", "objective=0.9995"],
            "--from, --by, --threshold would be ignored: `run vacuum` is about the whole lake",
        ),
        (["run", "rebase", "--allow-partial"], "--allow-partial would be ignored"),
        (["run", "compact", "--master", "local[1]", "--conf", "spark.x=y"], "--master, --conf would be ignored"),
        (["run", "vacuum", "--conf", "spark.x=y"], "`run vacuum` does not start Spark"),
        (["run", "check", "--url-env", "OTHER"], "`run check` does not use the store"),
        (["run", "availability", "--conf", "memory=1g"], "spark.some.key=value"),
        (["run", "availability", "--namespace", "a b"], "namespace"),
        (["run", "availability", "--url-env", "redis://:secret@localhost"], "name of a variable"),
        (["run", "availability", "--nonsense"], "No such option"),
        (["run"], "Missing argument"),
        (["route-at", "T", "--at", "now", "--version", "3"], "not both"),
        (["route-at", "T", "--version", "0"], "0 is not in the range"),
        (["route-at", "T", "--era", "1"], "--era needs --version"),
        (["route-at", "T", "--version", "3", "--allow-partial"], "it is for a time (--at)"),
        (["report"], "--out"),
        (["ingest", "--trigger", "30"], "a number and one of"),
        (["ingest", "--starting", "yesterday"], "yesterday"),
        (["ingest", "--max-entries", "0"], "0 is not in the range"),
        (["ingest", "--once", "--threshold", "objective=0.99"], "Add --refresh"),
        (["ingest", "--once", "--trigger", "30s"], "--trigger would be ignored"),
        (["nightly", "--out", "page.html", "--allow-partial"], "--allow-partial would be ignored"),
        (["ingest", "--once", "--allow-partial"], "An ingest reads everything"),
        (["ingest", "--allow-partial"], "An ingest reads everything"),
        (["doctor", "--url-env", "redis://:secret@localhost"], "name of a variable"),
        (["doctor", "--namespace", "a b"], "namespace"),
        (["export", "--url-env", "redis://:secret@localhost"], "name of a variable"),
        (["nonsense"], "No such command"),
    ],
)
def test_wrong_usage_says_what_is_allowed(
    arguments: list[str], advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = ["--lake", str(tmp_path)] if len(arguments) > 1 and arguments[0] != "export" else []
    lake += ["--out", str(tmp_path / "f")] if arguments[0] == "export" else []
    message = refused(capsys, *arguments, *lake)
    assert advice in message
    assert "secret" not in message


def test_the_error_for_an_unknown_question_lists_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "run", "uptime", "--lake", str(tmp_path))
    for name in [*QUESTIONS, *MAINTENANCE]:
        assert name in message


def test_the_error_for_a_missing_lake_says_how_to_name_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ROUTEBOOK_LAKE" in refused(capsys, "run", "availability")


def test_a_lake_that_does_not_exist_is_unreachable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reported before Spark starts."""
    message = refused(capsys, "run", "availability", "--lake", str(tmp_path / "nowhere"), code=3)
    assert "nowhere" in message
    assert "ingest" in message


def test_help_names_every_question_and_its_levels(capsys: pytest.CaptureFixture[str]) -> None:
    assert routebook(["pipeline", "run", "--help"]) == 0
    printed = capsys.readouterr().out
    for question in QUESTIONS.values():
        assert f"{question.name} " in printed
    assert "cluster, group, seat" in printed


@pytest.mark.parametrize(
    ("address", "code"), [("redis://127.0.0.1:1", 3), ("redis://", 2), ("http://:secret@127.0.0.1:1", 2)]
)
def test_doctor_distinguishes_an_invalid_address_from_an_unreachable_one(
    address: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROUTEBOOK_REDIS_URL", address)
    assert routebook(["pipeline", "doctor", "--json"]) == code
    printed = capsys.readouterr().out
    (store,) = [finding for finding in json.loads(printed) if finding["subject"] == "store"]
    assert (store["level"], store["code"]) == ("error", code)
    assert "secret" not in printed


def test_the_default_size_of_a_batch_is_that_of_the_source() -> None:
    assert {one.name: one.default for one in ingest.params}["max_entries"] == SourceOptions.max_entries_per_trigger


@pytest.mark.parametrize(
    "name", ["ingest", "backfill", "route-at", "run", "report", "nightly", "export", "package", "doctor"]
)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert routebook(["pipeline", name, "--help"]) == 0
    assert "--" in capsys.readouterr().out
