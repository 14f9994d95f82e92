"""The warm session: the commands that it runs have the same answers and exit codes as with a Spark of their own."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from routebook.http_api import questions
from routebook_pipeline.answers.catalogue import QUESTIONS
from routebook_pipeline.cli import warm
from routebook_pipeline.cli.serve import KEPT_S, MAX_KEPT_ANSWERS, MAX_KEPT_CHARACTERS, KeptAnswers
from routebook_pipeline.history import DAY_MS
from tests.pipeline.cli.commands import (
    ENTRIES,
    LIGHT,
    BackgroundCommand,
    export_file,
    last_day,
    two_days,
)
from tests.pipeline.cli.shell import Shell

MIDNIGHT_MS = int(time.time() * 1000) // DAY_MS * DAY_MS
DAY = (*last_day(MIDNIGHT_MS), "--allow-partial")
"""An imported history is complete until its last entry."""

NOTHING = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-01T00:00Z")
"""A window before the history: an import stores no answers."""


class Session:
    """A warm session in the background, and its client."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.socket = folder / "s"
        self.environment: Mapping[str, str] = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ROUTEBOOK_")},
            "ROUTEBOOK_LAKE": "lake",
            warm.SOCKET_VARIABLE: str(self.socket),
        }
        # Its own lake, for shared questions, and its clients' name for it.
        own = {**self.environment, "ROUTEBOOK_LAKE": str(folder / "lake")}
        self.background = BackgroundCommand(own, folder / "log", "serve", *LIGHT, *arguments)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "routebook", "pipeline", *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("warm")
    (folder / "changes.jsonl").write_text(export_file(two_days(MIDNIGHT_MS)))
    started = Session(folder)
    with started.background:
        started.background.wait_for_output("warm session ready")
        imported = started.run("backfill", "--import", "changes.jsonl", *NOTHING)
        assert (imported.returncode, imported.stdout) == (0, ""), imported
        yield started


def test_a_command_uses_the_session_and_the_clients_folder_and_variables(session: Session) -> None:
    answer = session.json("run", "availability", "--by", "seat", *DAY)
    assert [(row["broker"], row["availability"]) for row in answer["rows"]] == [("b", 1.0)]
    assert session.run("run", "availability", *DAY, "--csv", "--out", "answer.csv").returncode == 0
    assert (session.folder / "answer.csv").read_text().startswith("cluster,")
    # Java is started by nothing but the session: a command without it needs one, and finds none.
    assert session.run("run", "integrity", ROUTEBOOK_NAMESPACE="other").returncode == 3


def test_exit_codes_and_messages_are_those_of_the_command(session: Session) -> None:
    assert session.run("route-at", "no-such-topic").returncode == 1
    missed = session.run("run", "integrity", "--from", "-30d", *DAY[2:])
    assert (missed.returncode, "Error: The answer is no" in missed.stderr) == (1, True), missed
    assert session.run("run", "no-such-question").returncode == 2
    assert "orders" in session.run("run", "route", *DAY).stdout


def test_a_busy_or_foreign_session_is_not_used(session: Session) -> None:
    """The command starts a Spark of its own, and there is no Java on this path."""
    connection = warm._connect(session.socket)
    assert connection is not None
    with connection:
        request = warm.Request(version="0", arguments=["run", "check"], folder=str(session.folder))
        (message,) = warm._messages(connection, request)
    assert "has version" in message["refused"]
    refused = session.run("run", "integrity", *DAY, AWS_REGION="elsewhere", JAVA_HOME="/nowhere", PATH="/nowhere")
    assert "other credentials for object stores" in refused.stderr


def test_a_second_session_is_refused_and_the_socket_is_the_users_own(session: Session) -> None:
    assert session.socket.stat().st_mode & 0o077 == 0
    second = session.run("serve")
    assert (second.returncode, "already" in second.stderr) == (3, True), second


def test_a_command_whose_client_ends_is_cancelled(session: Session) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(session.socket))
        request = {
            "version": warm.package_version(),
            "arguments": ["report", *DAY, "--out", "cancelled.html"],
            "folder": str(session.folder),
            "environment": {"ROUTEBOOK_LAKE": "lake"},
            "credentials": warm.cloud_credentials(dict(session.environment)),
            "terminals": {},
        }
        client.sendall(json.dumps(request).encode() + b"\n")
        assert b"started" in client.recv(100)
    assert session.json("run", "integrity", *DAY)["rows"][0]["last_version"] == ENTRIES - 1
    assert not (session.folder / "cancelled.html").exists()


def test_followed_events_continue_when_the_lake_grows(session: Session) -> None:
    lines = (session.folder / "changes.jsonl").read_text().splitlines(keepends=True)
    (session.folder / "early.jsonl").write_text("".join(lines[:30]))
    # Imported entries are complete until the last one, which is therefore not shown yet.
    other = ("--lake", str(session.folder / "followed"))
    assert session.run("backfill", "--import", "early.jsonl", *NOTHING, *other).returncode == 0
    words = ("run", "events", "--follow", "--broker", "b", "--from", DAY[1], *other)
    followed = BackgroundCommand(session.environment, session.folder / "followed.log", *words)
    with followed:
        followed.wait_for_output("  29  broker-changed  c/b/0  127.0.0.1:10911 -> 127.0.0.1:10911")
        assert session.run("backfill", "--import", "changes.jsonl", *NOTHING, *other).returncode == 0
        followed.wait_for_output(f"  {ENTRIES - 1}  broker-changed")
        versions = [line.split("  ")[1] for line in followed.output.splitlines() if "broker-changed" in line]
        followed.send_signal(signal.SIGINT)
        assert followed.end() == 130
    assert versions == sorted(versions, key=int)
    assert len(set(versions)) == len(versions) - 1, "the entry with the topic has two rows"


def ask(session: Session, *words: str) -> questions._Reply:
    """As the service's HTTP port does."""
    return asyncio.run(questions._ask(str(session.socket), list(words)))


def test_the_service_gets_the_same_answer_and_a_kept_one_without_a_turn(session: Session) -> None:
    words = ("run", "availability", "--json", "--allow-partial", *(f"{DAY[at]}={DAY[at + 1]}" for at in (0, 2)))
    first = ask(session, *words)
    assert (first.code, json.loads(first.out)) == (0, session.json("run", "availability", *DAY))
    with socket.socket(socket.AF_UNIX) as client:
        # A command that runs for seconds has the turn.
        client.connect(str(session.socket))
        report = warm.Request(
            version=warm.package_version(),
            arguments=["report", *DAY, "--out", "meanwhile.html"],
            folder=str(session.folder),
            environment={"ROUTEBOOK_LAKE": "lake"},
        )
        client.sendall(json.dumps(asdict(report)).encode() + b"\n")
        assert b"started" in client.recv(100)
        assert ask(session, *words).out == first.out
        assert not (session.folder / "meanwhile.html").exists(), "the kept answer came before the end of the report"


def test_the_service_can_only_ask_questions(session: Session) -> None:
    for words in (("run", "compact"), ("report", "--out", "x.html"), ("run", "availability ")):
        assert ask(session, *words).refused == "it is not a question"
    missing = ask(session, "run", "integrity", "--json", "--namespace=other")
    assert (missing.code, missing.out, "There is no table" in missing.err) == (3, "", True)


FIXED = ("run", "churn", "--from=2026-01-01T00:00Z", "--to=2026-01-02T00:00Z")
WHOLE, PARTIAL = '{"partial": false}', '{"partial": true}'


@pytest.mark.parametrize(
    ("words", "out", "is_lasting"),
    [
        (FIXED, WHOLE, True),
        (FIXED, PARTIAL, False),
        (FIXED[:3], WHOLE, False),
        ((*FIXED[:3], "--to=-1h"), WHOLE, False),
    ],
)
def test_an_answer_is_kept_while_it_is_right(words: tuple[str, ...], out: str, *, is_lasting: bool) -> None:
    now_s = 0.0
    kept = KeptAnswers(lambda: now_s)
    kept.put(words, (4, 7), out, 0)
    assert kept.get(words, (4, 7)) == [{"out": out}, {"code": 0}]
    assert kept.get(words, (5, 7)) is None, "the lake has grown"
    assert kept.get((*words, "--top=1"), (4, 7)) is None
    now_s = KEPT_S + 1
    assert (kept.get(words, (4, 7)) is not None) == is_lasting


def test_few_answers_of_limited_length_are_kept() -> None:
    kept = KeptAnswers()
    kept.put(FIXED, (1,), WHOLE + " " * MAX_KEPT_CHARACTERS, 0)
    assert kept.get(FIXED, (1,)) is None
    for number in range(MAX_KEPT_ANSWERS + 1):
        kept.put((*FIXED, f"--top={number}"), (1,), WHOLE, 0)
        kept.get((*FIXED, "--top=0"), (1,))
    assert kept.get((*FIXED, "--top=0"), (1,)) is not None, "the one used last"
    assert kept.get((*FIXED, "--top=1"), (1,)) is None, "the one not used for longest"


@pytest.mark.slow
def test_warm_and_cold_answers_are_equal(session: Session) -> None:
    """All thirteen questions at each of their levels, and `route-at`, in words and as JSON."""
    asked = [("run", name, "--by", level, *DAY) for name, one in QUESTIONS.items() for level in one.levels]
    asked += [("route-at", "orders"), ("route-at", "no-such-topic"), ("run", "route", "--from", "2030-01-01T00:00Z")]
    assert len(QUESTIONS) == 13
    environment = {**session.environment, "ROUTEBOOK_LAKE": str(session.folder / "lake")}
    with Shell(environment) as shell:
        for words in asked:
            for form in ((), ("--json",)):
                answered = session.run(*words, *form)
                cold = shell.pipeline(*words, *form, "--cold", *LIGHT)
                assert (answered.returncode, answered.stdout) == (cold.code, cold.out), words


def test_the_session_ends_in_order(tmp_path: Path) -> None:
    """The first one by a signal, and another one because it is idle."""
    for arguments in ((), ("--idle", "1s")):
        started = Session(tmp_path, *arguments)
        with started.background as background:
            background.wait_for_output("warm session ready")
            if not arguments:
                background.send_signal(signal.SIGTERM)
            assert background.end() == 0
    assert not started.socket.exists()
