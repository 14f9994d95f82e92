"""One namespace in the store: the connection, the names of its keys, and the Lua scripts that read and write it.

The scripts are loaded, their includes expanded, and run by the hash of their text. The hash is the version: in a
rolling upgrade, old and new workers each run their own text. When the store does not have a script (after a restart, a
failover or SCRIPT FLUSH), the same call sends the text.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from importlib.resources import files
from pathlib import Path
from time import perf_counter
from typing import Any

from routebook.errors import InvalidInputError, ScriptError, StoreError, StoreUnsuitableError
from routebook.store.connection.client import NoScriptError, StoreClient
from routebook.store.keys import Keys

_INCLUDE = re.compile(r"^-- include: (\w+)[ \t]*$", re.MULTILINE)
_HEADER = re.compile(r"\A--\[\[.*?\]\]\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    source: str
    sha1: str


def script_folder() -> Path:
    """In the installed package, or at the top of a source checkout."""
    packaged = Path(str(files("routebook"))) / "lua"
    checkout = Path(__file__).resolve().parents[3] / "lua"
    for folder in (packaged, checkout):
        if folder.is_dir():
            return folder
    raise ScriptError(
        f"No Lua scripts in {packaged}.", advice="The installation is incomplete: install routebook again."
    )


def _read(path: Path, chain: tuple[str, ...]) -> str:
    try:
        return _HEADER.sub("", path.read_text(encoding="utf-8"), count=1)
    except OSError as error:
        raise ScriptError(
            f"{' → '.join(chain)}: {path} cannot be read ({error.strerror}).",
            advice="Every include needs a file with its name.",
        ) from error


def _expand(name: str, path: Path, folder: Path, seen: set[str], chain: tuple[str, ...]) -> str:
    chain = (*chain, name)

    def include(found: re.Match[str]) -> str:
        wanted = found[1]
        if wanted in chain:
            raise ScriptError(
                f"Circular include: {' → '.join((*chain, wanted))}.",
                advice="Move what both need into a third file.",
            )
        if wanted in seen:
            return ""
        seen.add(wanted)
        return _expand(wanted, folder / "include" / f"{wanted}.lua", folder, seen, chain)

    return _INCLUDE.sub(include, _read(path, chain))


class ScriptSet:
    """All scripts of one version of Routebook."""

    def __init__(self, scripts: dict[str, Script]) -> None:
        self._scripts = scripts

    @classmethod
    def load(cls, folder: Path | None = None) -> "ScriptSet":
        folder = folder or script_folder()
        scripts: dict[str, Script] = {}
        for path in sorted(folder.glob("*.lua")):
            source = _expand(path.stem, path, folder, set(), ())
            digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
            scripts[path.stem] = Script(path.stem, source, digest)
        if not scripts:
            raise ScriptError(
                f"{folder} holds no Lua script.", advice="The installation is incomplete: install it again."
            )
        return cls(scripts)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._scripts)

    @property
    def fingerprint(self) -> str:
        """One hash of all scripts. It is logged at the start, and `status` shows it, so workers can be compared."""
        joined = "".join(script.sha1 for script in self._scripts.values())
        return hashlib.sha1(joined.encode(), usedforsecurity=False).hexdigest()[:12]

    def __getitem__(self, name: str) -> Script:
        return self._scripts[name]

    async def run(self, client: StoreClient, name: str, key: str, *args: str | bytes | int) -> Any:
        script = self._scripts[name]
        try:
            return await client.call("EVALSHA", script.sha1, 1, key, *args)
        except NoScriptError:
            return await client.call("EVAL", script.source, 1, key, *args)

    async def run_all(self, client: StoreClient, name: str, key: str, arguments: list[list[str]]) -> list[Any]:
        """Many runs of one script in one pipeline. It must only read, since the whole pipeline may be repeated."""
        script = self._scripts[name]
        commands: list[list[str | int]] = [["EVALSHA", script.sha1, 1, key, *args] for args in arguments]
        try:
            return await client.pipeline(commands)
        except NoScriptError:
            # Loaded by the same pipeline: the store may lose its scripts again at any time.
            return (await client.pipeline([["SCRIPT", "LOAD", script.source], *commands]))[1:]


class Status(IntEnum):
    """How a script ended. `lua/include/statuses.lua` has the same list."""

    DONE = 0
    UNCHANGED = 1
    UNKNOWN = 2
    STALE = 3
    REFUSED = 4
    TURNED_DOWN = 5
    FENCED = 6
    LIMITED = 7
    HELD = 8


def text(value: Any) -> str:
    """A bulk reply as text; empty if there is none."""
    return "" if value is None else bytes(value).decode()


def status_of(reply: list[Any]) -> Status:
    return Status(reply[0])


SCHEMA = 2
"""Layout of the keys in the store. A worker migrates an older one at its start, and refuses to start on a newer one."""


OnRun = Callable[[str, float, Status | None, StoreError | None], None]
"""Called after every run of a script: its name, the seconds it took, the status of its reply (None if the reply has
none), and the error if it failed.
"""


def ignore_run(script: str, seconds: float, status: Status | None, error: StoreError | None) -> None:
    """For tests and tools, which count nothing."""


@dataclass(frozen=True, slots=True)
class Namespace:
    client: StoreClient
    keys: Keys
    scripts: ScriptSet
    on_run: OnRun = ignore_run

    async def run(self, script: str, *args: str | int) -> list[Any]:
        """Run one script. It builds every key that it uses from `meta`; its reply begins with status and version."""
        start = perf_counter()
        try:
            reply = await self.scripts.run(self.client, script, self.keys.meta, *args)
        except StoreError as error:
            self.on_run(script, perf_counter() - start, None, error)
            raise
        except UnicodeEncodeError as error:
            # Nothing has been sent. The ports check all texts; this covers a check that is missing.
            raise InvalidInputError("a text", error.object[:100], "texts in UTF-8, without lone surrogates") from error
        if not isinstance(reply, list):
            raise StoreUnsuitableError(
                f"{script} answered {reply!r}.", advice="Another program may be using this namespace."
            )
        self.on_run(script, perf_counter() - start, status_of(reply), None)
        return reply

    async def run_all(self, script: str, arguments: list[list[str]]) -> list[Any]:
        """Run a script that only reads, once for each list of arguments, in one pipeline. Replies have no status."""
        start = perf_counter()
        try:
            replies = await self.scripts.run_all(self.client, script, self.keys.meta, arguments)
        except StoreError as error:
            self.on_run(script, perf_counter() - start, None, error)
            raise
        self.on_run(script, perf_counter() - start, None, None)
        return replies


@dataclass(frozen=True, slots=True)
class Outcome:
    """The reply of most scripts: the status, and the version of the route table afterwards."""

    status: Status
    version: int

    @classmethod
    def of(cls, reply: list[Any]) -> "Outcome":
        return cls(status_of(reply), int(reply[1]))


@dataclass(frozen=True, slots=True)
class CountedOutcome:
    status: Status
    version: int
    count: int

    @classmethod
    def of(cls, reply: list[Any]) -> "CountedOutcome":
        return cls(status_of(reply), int(reply[1]), int(reply[2]))
