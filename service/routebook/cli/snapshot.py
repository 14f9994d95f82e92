"""A snapshot in parts that a service takes one by one, and the sum of what it says to them.

`routebook snapshot export|import`
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from routebook.cli.compare import unverified
from routebook.cli.output import ProgressLine, print_table
from routebook.cli.service_client import Service, as_json, error_of, print_json, with_service
from routebook.client.name_server import NameServer
from routebook.compare.collecting import Questions, ask_lists, ask_routes, snapshot_of
from routebook.errors import InvalidInputError
from routebook.model.names import check_address
from routebook.model.snapshot import Snapshot
from routebook.model.topic import ORDER_TOPIC_NAMESPACE
from routebook.runtime import exits
from routebook.snapshots.document import encode_document

PART_TOPICS: Final = 5_000
"""About half a megabyte: some ten milliseconds of a worker. A group stays whole, however many topics it has: its
registration would be as large.
"""
MEMBER_TOPICS: Final = 50
"""What a member counts for: each is a registration, whether it has topics or not."""
PART_VALUES: Final = 250

_SHAPE: Final = {
    "snapshot": int,
    "taken": dict,
    "left_out": list,
    "settings": dict,
    "key_values": dict,
    "groups": list,
}

Document = dict[str, Any]


def read_snapshot(file: str) -> Document:
    try:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}.") from error
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(file, f"no JSON ({error})", "what `routebook snapshot export` writes") from None
    if not isinstance(document, dict) or not all(isinstance(document.get(key), kind) for key, kind in _SHAPE.items()):
        raise InvalidInputError(file, "some JSON", "what `routebook snapshot export` writes")
    if unknown := document.keys() - _SHAPE.keys():
        raise InvalidInputError("key of the snapshot", min(unknown), ", ".join(_SHAPE))
    return document


def parts_of(document: Document) -> list[Document]:
    """Each is a snapshot by itself. Settings come first, since they may have a say in what follows."""
    head = {"snapshot": document["snapshot"], "settings": document["settings"]}
    parts = [head, *_value_parts(document), *_group_parts(document)]
    return [{**part, "snapshot": document["snapshot"]} for part in parts]


def _value_parts(document: Document) -> list[Document]:
    entries = [
        (namespace, key, value) for namespace, values in document["key_values"].items() for key, value in values.items()
    ]
    parts = []
    for start in range(0, len(entries), PART_VALUES):
        values: dict[str, dict[str, str]] = {}
        for namespace, key, value in entries[start : start + PART_VALUES]:
            values.setdefault(namespace, {})[key] = value
        parts.append({"key_values": values})
    return parts


def _group_parts(document: Document) -> list[Document]:
    parts: list[list[object]] = []
    size = PART_TOPICS
    for group in document["groups"]:
        weight = _weight(group)
        if size + weight > PART_TOPICS or not parts:
            parts.append([])
            size = 0
        parts[-1].append(group)
        size += weight
    return [{"groups": groups} for groups in parts]


def _weight(group: object) -> int:
    """Whatever is in the file: the service says what is wrong with it."""
    if not isinstance(group, dict):
        return 1
    topics, members = (
        found if isinstance(found, dict | list) else () for found in map(group.get, ("topics", "members"))
    )
    return len(topics) + MEMBER_TOPICS * len(members) + 1


class Sum:
    """What the service said to all parts."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.steps: list[Document] = []
        self.left_out: list[str] = []
        self.turned_down: list[str] = []
        self.version = 0

    def add(self, answer: Document) -> None:
        for kind, counted in answer["counts"].items():
            self.counts.setdefault(kind, Counter()).update(counted)
        self.steps += answer["steps"]
        self.left_out += answer["left_out"]
        self.turned_down += answer["turned_down"]
        self.version = answer["version"]

    @property
    def is_complete(self) -> bool:
        """All of the snapshot is (or would be) in the route table."""
        return not (self.left_out or self.turned_down or any(counted["keep"] for counted in self.counts.values()))

    def document(self, *, dry_run: bool) -> Document:
        return {
            "dry_run": dry_run,
            "counts": {kind: dict(counted) for kind, counted in self.counts.items()},
            "steps": self.steps,
            "left_out": self.left_out,
            "turned_down": self.turned_down,
            "version": self.version,
        }


STDIO: Final = "-"
PAUSES_S: Final = (1.0, 2.0, 4.0)
PART_TIMEOUT_S: Final = 60.0


@click.group("snapshot")
def snapshot_command() -> None:
    """The whole namespace as one JSON document: brokers with their topics, key-values, settings."""


@snapshot_command.command("export")
@click.argument("file", default=STDIO)
@click.option("--from", "source", metavar="ADDRESS", help="Of another name server, Apache's too.")
@click.option("--kv", "namespaces", multiple=True, metavar="NAMESPACE", help="With --from: key-values to take as well.")
@click.option("--tls", is_flag=True, help="With --from: encrypt; the certificate is not verified.")
@with_service
def export(service: Service, *, file: str, source: str | None, namespaces: tuple[str, ...], tls: bool) -> None:
    """Write a snapshot to FILE, or to standard output.

    Key-values are in it as they are: keep it like a secret if there are some.
    """
    with ProgressLine() as line, _output(file) as output:
        if source is None:
            _export_service(service, output, line)
        else:
            questions = Questions(tuple(dict.fromkeys((ORDER_TOPIC_NAMESPACE, *namespaces))))
            snapshot = asyncio.run(_ask(check_address("ADDRESS", source), questions, tls, line))
            for part in encode_document(snapshot):
                output.write(part)
            for reason in snapshot.left_out:
                click.echo(f"Left out: {reason}.", err=True)


@snapshot_command.command("import")
@click.argument("file", default=STDIO)
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--replace", is_flag=True, help="Where the route table says something else, take the snapshot's word.")
@as_json
@with_service
def import_(service: Service, *, file: str, dry_run: bool, replace: bool, json_: bool) -> int:
    """Bring a snapshot from FILE, or from standard input, into the route table.

    Checked as a whole first. Nothing is deleted; brokers that do not exist expire like any that fall silent. The same
    again changes nothing: an import that was interrupted is simply repeated. Exit code 1: something was left as it was.
    """
    parts = parts_of(read_snapshot(file))
    with ProgressLine() as line:
        done = _send(service, parts, replace=replace, dry_run=True, line=line)
        if not dry_run:
            done = _send(service, parts, replace=replace, dry_run=False, line=line)
    if json_:
        print_json(done.document(dry_run=dry_run))
    else:
        _print(done, dry_run=dry_run)
    return exits.DONE if done.is_complete else exits.ANSWER_IS_NO


def _export_service(service: Service, output: BinaryIO, line: ProgressLine) -> None:
    written = 0
    with service.connection_errors(), service.http.stream("GET", "/v1/snapshot") as answer:
        if not answer.is_success:
            answer.read()
            raise error_of(answer)
        for part in answer.iter_bytes():
            written += output.write(part)
            line.show("exported", f"{written / 1e6:.1f} MB")


async def _ask(address: str, questions: Questions, tls: bool, line: ProgressLine) -> Snapshot:
    async with await NameServer.connect(address, tls=unverified() if tls else None) as server:
        said = await ask_lists(server, questions)
        topics = said.topics or frozenset()

        def tell(done: int, total: int) -> None:
            line.show_routes(address, done, total)

        return snapshot_of(said.with_routes(await ask_routes(server, topics, tell)), address)


@contextmanager
def _output(file: str) -> Iterator[BinaryIO]:
    """A file appears when it is whole; what is not whole must not look like a snapshot. Readable by its owner only."""
    if file == STDIO:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(file)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
            yield output
        partial.replace(target)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)


def _send(service: Service, parts: list[dict[str, Any]], *, replace: bool, dry_run: bool, line: ProgressLine) -> Sum:
    """Small parts, so that the service goes on answering lookups while it takes them in."""
    done = Sum()
    query = {"dry_run": json.dumps(dry_run), "replace": json.dumps(replace)}
    for number, part in enumerate(parts, 1):
        done.add(_send_one(service, query, part))
        line.show("checked" if dry_run else "imported", f"{number} of {len(parts)} parts")
    return done


def _send_one(service: Service, query: dict[str, str], part: dict[str, Any]) -> Any:
    """A part that the service could not take just now is sent again: what it took already it takes as the same."""
    for pause in (*PAUSES_S, None):
        try:
            return service.request("PUT", "/v1/snapshot", params=query, body=part, timeout_seconds=PART_TIMEOUT_S)
        except exits.ServiceUnreachableError:
            if pause is None:
                raise
            time.sleep(pause)
    raise AssertionError


def _print(done: Sum, *, dry_run: bool) -> None:
    rows = [
        (step["action"], step["kind"], step["name"], name, _cell(now), _cell(then))
        for step in done.steps
        for name, (now, then) in (step["fields"].items() if step["action"] != "create" else [("", (None, None))])
    ]
    if rows:
        print_table(("action", "kind", "name", "field", "namespace", "snapshot"), rows)
    for reason in done.left_out:
        click.echo(f"Left out: {reason}.", err=True)
    for name in done.turned_down:
        click.echo(f"Turned down: {name}; another address holds the seat with a higher state version.", err=True)
    click.echo(_summary(done, dry_run=dry_run))


def _cell(value: object) -> object:
    return " ".join(str(item) for item in value) if isinstance(value, list) else value


def _summary(done: Sum, *, dry_run: bool) -> str:
    verb = "Would write" if dry_run else "Written"
    kinds = [f"{counted['create'] + counted['replace']} {kind}s" for kind, counted in done.counts.items()]
    written = sum(counted["create"] + counted["replace"] for counted in done.counts.values())
    kept = sum(counted["keep"] for counted in done.counts.values())
    same = sum(counted["same"] for counted in done.counts.values())
    what = f"{verb}: {', '.join(kinds)}" if written else f"{verb}: nothing"
    keeps = f"; {kept} differ and {'would stay' if dry_run else 'stay'} as they are (--replace)" if kept else ""
    return f"{what}; {same} are the same{keeps}."
