"""`routebook pipeline` without Spark: help, usage, completion."""

import subprocess
import sys

import pytest

from routebook.cli.main import run as routebook


def test_help_and_completion_import_neither_spark_nor_other_large_libraries() -> None:
    """Spark's modules take a second to import, and a session ten seconds to start."""
    program = (
        "import sys\n"
        "from routebook_pipeline.cli import pipeline\n"
        "context = pipeline.make_context('pipeline', [], resilient_parsing=True)\n"
        "for name in pipeline.list_commands(context):\n"
        "    pipeline.get_command(context, name).get_help(context)\n"
        "print(sorted({'pyspark', 'pyarrow', 'deltalake', 'redis', 'rich'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n", result.stderr


def test_the_services_command_line_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert routebook(["pipeline", "--help"]) == 0
    assert "doctor" in capsys.readouterr().out


def test_doctor_reports_java_and_hiredis(capsys: pytest.CaptureFixture[str]) -> None:
    assert routebook(["pipeline", "doctor"]) == 0
    printed = capsys.readouterr().out
    assert "java" in printed
    assert "hiredis" in printed
