"""One namespace in the store: the connection, the names of its keys, and the Lua scripts that read and write it.

The scripts are loaded, their includes expanded, and run by the hash of their text. The hash is the version: in a
rolling upgrade, old and new workers each run their own text. When the store does not have a script (after a restart, a
failover or SCRIPT FLUSH), the same call sends the text.

`pack_…` and `unpack_…` say how values are written in the store, and in the JSON of a change.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from importlib.resources import files
from itertools import chain
from json.encoder import encode_basestring
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Literal, cast

from routebook.errors import InvalidInputError, ScriptError, StoreError, StoreUnsuitableError
from routebook.model.broker import QueueData, TopicMapping
from routebook.model.names import Caller
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

    async def run(
        self, client: StoreClient, name: str, key: str, *args: str | bytes | int, epoch: int | None = None
    ) -> Any:
        script = self._scripts[name]
        try:
            return await client.call("EVALSHA", script.sha1, 1, key, *args, epoch=epoch)
        except NoScriptError:
            return await client.call("EVAL", script.source, 1, key, *args, epoch=epoch)

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

    async def run(self, script: str, *args: str | int, epoch: int | None = None) -> list[Any]:
        """Run one script. It builds every key that it uses from `meta`; its reply begins with status and version.
        `epoch` as in `StoreClient.call`.
        """
        start = perf_counter()
        try:
            reply = await self.scripts.run(self.client, script, self.keys.meta, *args, epoch=epoch)
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


_quote: Final = encode_basestring
"""A text as `json.dumps` with `ensure_ascii=False` writes it, in a twentieth of the time."""

ITEMS_PER_CHUNK: Final = 1000
"""Queue items per entry of the history, which has at most 1,000 topics and 256 KiB."""

CHUNK_BYTES: Final = 200_000
"""A chunk of long topic names ends before it has that many items. The script joins chunks up to the same size."""


def compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def pack_caller(caller: Caller) -> str:
    """The JSON members that every change begins with."""
    members = {"actor": caller.actor, "source": caller.source}
    for name in ("worker", "port", "verb"):
        if value := getattr(caller, name):
            members[name] = value
    return compact_json(members)[1:-1]


def sha256_of(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def queue_item(topic: str, queue: QueueData) -> str:
    """One item of a change's `queues`. Formatted by hand, because a registration has thousands of them."""
    return '{"t":' + _quote(topic) + _queue_numbers(queue)


def queue_items(queues: Mapping[str, QueueData]) -> list[str]:
    """The topics of a registration share a few values, so each value is formatted once."""
    numbers = _for_each_topic(queues, _queue_numbers)
    return ['{"t":' + _quote(topic) + text for topic, text in zip(queues, numbers, strict=True)]


def _queue_numbers(queue: QueueData) -> str:
    return f',"r":{queue.read_queues},"w":{queue.write_queues},"p":{queue.perm},"f":{queue.flags}}}'


def pack_queues(queues: Mapping[str, QueueData]) -> list[str]:
    """Topic, packed queue data, topic, packed queue data, …"""
    packed = _for_each_topic(queues, QueueData.pack)
    return list(chain.from_iterable(zip(queues, packed, strict=True)))


def _for_each_topic(queues: Mapping[str, QueueData], convert: Callable[[QueueData], str]) -> Iterator[str]:
    """Converts each distinct value once."""
    keys = list(map(id, queues.values()))
    converted = {key: convert(queue) for key, queue in dict(zip(keys, queues.values(), strict=True)).items()}
    return map(converted.__getitem__, keys)


def _removed_item(topic: str) -> str:
    return f'{{"t":{_quote(topic)},"x":1}}'


QueueChange = tuple[Literal["n", "d", "x"], Mapping[str, QueueData | None]]
"""Topics that are new, that differ, or that are dropped (with None)."""


def queues_put_by(change: QueueChange) -> Mapping[str, QueueData]:
    kind, queues = change
    return {} if kind == "x" else cast("Mapping[str, QueueData]", queues)


def queue_chunks(change: QueueChange, known: Mapping[str, QueueData]) -> list[str]:
    """Queue items joined for the history, each chunk small enough for one entry: `<kind> <number>`, items, the items
    that these topics have in `known`, `<kind> <number>`, …
    """
    kind, queues = change
    topics = list(queues)
    packed: list[str] = []
    at, number = 0, ITEMS_PER_CHUNK
    while at < len(topics):
        part = topics[at : at + number]
        items, former = _items_of(change, part), _former_items(kind, part, known)
        if len(part) > 1 and len(items.encode()) + len(former.encode()) > CHUNK_BYTES:
            number = len(part) // 2  # long names
            continue
        packed += [f"{kind} {len(part)}", items, former]
        at += len(part)
    return packed


def _items_of(change: QueueChange, topics: Sequence[str]) -> str:
    kind, queues = change
    if kind == "x":
        return ",".join(map(_removed_item, topics))
    wanted = queues_put_by((kind, queues))
    return ",".join(queue_items({topic: wanted[topic] for topic in topics}))


def _former_items(kind: str, topics: Sequence[str], known: Mapping[str, QueueData]) -> str:
    if kind == "n":
        return ""
    return ",".join(queue_items({topic: known[topic] for topic in topics if topic in known}))


def pack_mapping(mapping: TopicMapping) -> str:
    return compact_json(
        {
            "topic": mapping.topic,
            "bname": mapping.bname,
            "totalQueues": mapping.total_queues,
            "epoch": mapping.epoch,
            "dirty": mapping.dirty,
            "scope": mapping.scope,
            "currIdMap": [list(pair) for pair in mapping.current_ids],
        }
    )


def unpack_mapping(packed: bytes | str) -> TopicMapping:
    read = json.loads(packed)
    return TopicMapping(
        topic=read["topic"],
        bname=read["bname"],
        total_queues=read["totalQueues"],
        epoch=read["epoch"],
        dirty=read["dirty"],
        scope=read["scope"],
        current_ids=tuple((logical, physical) for logical, physical in read["currIdMap"]),
    )


def pack_filters(filters: Iterable[str] | None) -> str:
    """Empty text keeps the stored list; `[]` removes it."""
    return "" if filters is None else compact_json(list(filters))


def unpack_seats(flat: list[bytes]) -> dict[int, str]:
    """From id, address, id, address, …"""
    return {int(flat[i]): flat[i + 1].decode() for i in range(0, len(flat), 2)}


def pairs(flat: list[bytes]) -> Mapping[str, str]:
    """From the reply for a hash: field, value, field, value, …"""
    return {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}
