"""Runs a command in the warm session (`routebook pipeline serve`), which has Spark and Java started already.

The client side. It imports nothing of Spark: a command that finds a warm session does not wait for those imports.

The session runs the command itself, from its words, so that the answer and the exit code are those that a Spark of its
own would give. Both sides exchange lines of JSON over a socket of the user's. The client sends one `Request`. It gets
`{"started": true}`, then any number of `{"out": text}` and `{"err": text}`, and at last `{"code": exit code}`; or
`{"refused": reason}`, and then it starts a Spark of its own.

The service's HTTP port is the other client (`routebook/http_api/questions.py`). It cannot import this module, starts no
Spark, and asks with `shared`.
"""

import json
import os
import shutil
import socket
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, TextIO

import click

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.local_files import cache_folder

SOCKET_VARIABLE: Final = "ROUTEBOOK_PIPELINE_SOCKET"
PATIENCE_S: Final = 15.0
"""How long a command waits for its turn in the session: as long as the start of a Spark of its own takes."""
CONNECT_TIMEOUT_S: Final = 1.0
MAX_LINE_BYTES: Final = 1 << 20
"""The longest request that a session reads."""

WARM_COMMANDS: Final = frozenset({"run", "route-at", "report", "backfill"})
"""Commands that answer and end. `ingest` and `nightly` run for long, and always have a Spark of their own."""
OWN_SPARK: Final = {"master": "--master", "conf": "--conf", "debug": "--debug", "cold": "--cold"}
"""Options that a running session cannot follow."""
_TERMINAL_VARIABLES: Final = frozenset({"TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "LANG", "LC_ALL"})
_CLOUD_PREFIXES: Final = ("AWS_", "AZURE_", "GOOGLE_", "HADOOP_")


is_session = False
"""Whether this process is the warm session."""


@dataclass(frozen=True)
class Request:
    version: str
    """The version of the package. Another version may give other answers."""
    arguments: list[str]
    folder: str | None = None
    """The working directory, for relative paths. None: the session's, as for the next two."""
    environment: dict[str, str] | None = None
    """Variables that the command reads."""
    credentials: dict[str, str] | None = None
    """Variables for object stores. Java took its own from the session's environment, so these have to be equal."""
    terminals: dict[str, bool] = field(default_factory=dict)
    """Which of `out` and `err` are terminals."""
    shared: bool = False
    """A question about the session's own lake, whose answer others may get too: it is kept while the lake does not
    change, and computed to its end although the client has gone.
    """


def package_version() -> str:
    try:
        return version("routebook")
    except PackageNotFoundError:
        return "unknown"


def socket_path() -> Path:
    named = os.environ.get(SOCKET_VARIABLE)
    if named:
        return Path(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "routebook-pipeline.sock" if runtime else cache_folder() / "pipeline.sock"


def cloud_credentials(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_CLOUD_PREFIXES)}


def run_warm(arguments: Sequence[str], url_env: str, out: TextIO | None = None) -> int | None:
    """The exit code of the command, run by the warm session; None if it has to be run here.

    `out`: where its standard output goes, instead of ours.
    """
    if is_session:
        return None
    connection = _connect(socket_path())
    if connection is None:
        return None
    with connection:
        return _run(connection, _request(arguments, url_env), out or sys.stdout)


def _connect(path: Path) -> socket.socket | None:
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        return None
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(CONNECT_TIMEOUT_S)
    try:
        connection.connect(str(path))
    except OSError:
        # The session was killed, and its socket is left.
        connection.close()
        return None
    return connection


def _request(arguments: Sequence[str], url_env: str) -> Request:
    columns, lines = shutil.get_terminal_size()
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("ROUTEBOOK_") or name in _TERMINAL_VARIABLES or name == url_env
    }
    return Request(
        version=package_version(),
        arguments=list(arguments),
        folder=os.getcwd(),
        environment={**environment, "COLUMNS": str(columns), "LINES": str(lines)},
        credentials=cloud_credentials(dict(os.environ)),
        terminals={"out": sys.stdout.isatty(), "err": sys.stderr.isatty()},
    )


def _run(connection: socket.socket, request: Request, out: TextIO) -> int | None:
    outputs: dict[str, TextIO] = {"out": out, "err": sys.stderr}
    started = False
    for message in _messages(connection, request):
        if "code" in message:
            return int(message["code"])
        if "refused" in message:
            click.echo(f"The warm session does not run this command: {message['refused']}.", err=True)
            return None
        started = started or "started" in message
        for name, stream in outputs.items():
            if name in message:
                stream.write(message[name])
                stream.flush()
    if started:
        raise UnreachableError(
            "The warm session ended during this command. Repeat it; with --cold it starts a Spark of its own."
        )
    return None


def _messages(connection: socket.socket, request: Request) -> Iterator[dict[str, Any]]:
    """Ends without a code if the session ends, or does not start the command soon."""
    try:
        connection.settimeout(PATIENCE_S)
        connection.sendall(json.dumps(asdict(request)).encode() + b"\n")
        with connection.makefile("r", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                # Once it has started, the command takes as long as it takes.
                connection.settimeout(None)
                yield json.loads(line)
    except TimeoutError:
        click.echo("The warm session is busy; starting Spark for this command.", err=True)
    except ConnectionError:
        return
