"""`routebook pipeline` without Spark: help, usage, completion."""

import subprocess
import sys

import pytest

from routebook.cli.main import run as routebook


def test_help_and_completion_do_not_wait_for_spark() -> None:
    """Its modules take a second to load, its session ten."""
    asked = (
        "import sys\n"
        "from routebook_pipeline.cli import pipeline\n"
        "context = pipeline.make_context('pipeline', [], resilient_parsing=True)\n"
        "for name in pipeline.list_commands(context):\n"
        "    pipeline.get_command(context, name).get_help(context)\n"
        "print(sorted({'pyspark', 'pyarrow', 'deltalake', 'redis'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n", told.stderr


def test_the_service_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert routebook(["pipeline", "--help"]) == 0
    assert "doctor" in capsys.readouterr().out


def test_doctor_finds_java_and_says_whether_replies_are_parsed_in_c(capsys: pytest.CaptureFixture[str]) -> None:
    assert routebook(["pipeline", "doctor"]) == 0
    shown = capsys.readouterr().out
    assert "java" in shown
    assert "hiredis" in shown
