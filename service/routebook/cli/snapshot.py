"""`routebook snapshot export|import`

An import sends the snapshot in parts, which the service imports one by one, and adds up the results.
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

from routebook.cli.command import command_group
from routebook.cli.compare import unverified_tls
from routebook.cli.output import ProgressLine, print_table
from routebook.cli.service_client import Service, as_json, error_of, print_json, with_service
from routebook.compare.collecting import CollectOptions, collect_lists, collect_routes, snapshot_of
from routebook.errors import InvalidInputError
from routebook.model.broker import ORDER_TOPIC_NAMESPACE
from routebook.model.names import check_address
from routebook.model.snapshot import Snapshot
from routebook.remoting_client import NameServer
from routebook.runtime import exits
from routebook.snapshots.document import encode_document

PART_TOPICS: Final = 5_000
"""Topics per part: about half a megabyte, which a worker imports in some ten milliseconds. A group is never split,
because its registration would be as large.
"""
INSTANCE_WEIGHT: Final = 50
"""An instance counts as this number of topics, since each is one registration, with or without topics."""
PART_VALUES: Final = 250
"""Key-values per part."""

_FIELD_TYPES: Final = {
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
        raise InvalidInputError(file, f"no JSON ({error})", "a file written by `routebook snapshot export`") from None
    if not isinstance(document, dict) or not all(
        isinstance(document.get(key), kind) for key, kind in _FIELD_TYPES.items()
    ):
        raise InvalidInputError(file, "other JSON", "a file written by `routebook snapshot export`")
    if unknown := document.keys() - _FIELD_TYPES.keys():
        raise InvalidInputError("key of the snapshot", min(unknown), ", ".join(_FIELD_TYPES))
    return document


def parts_of(document: Document) -> list[Document]:
    """Splits a snapshot into smaller ones. Settings come first, since they may affect the other parts."""
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
    """Accepts any content: the service reports what is wrong with it."""
    if not isinstance(group, dict):
        return 1
    topics, instances = (
        found if isinstance(found, dict | list) else () for found in map(group.get, ("topics", "members"))
    )
    return len(topics) + INSTANCE_WEIGHT * len(instances) + 1


class ImportTotals:
    """The sum of the results of all parts."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.steps: list[Document] = []
        self.left_out: list[str] = []
        self.turned_down: list[str] = []
        self.version = 0

    def add(self, result: Document) -> None:
        for kind, counts in result["counts"].items():
            self.counts.setdefault(kind, Counter()).update(counts)
        self.steps += result["steps"]
        self.left_out += result["left_out"]
        self.turned_down += result["turned_down"]
        self.version = result["version"]

    @property
    def is_complete(self) -> bool:
        """Whether the route table has (or would have) everything of the snapshot."""
        return not (self.left_out or self.turned_down or any(counts["keep"] for counts in self.counts.values()))

    def document(self, *, dry_run: bool) -> Document:
        return {
            "dry_run": dry_run,
            "counts": {kind: dict(counts) for kind, counts in self.counts.items()},
            "steps": self.steps,
            "left_out": self.left_out,
            "turned_down": self.turned_down,
            "version": self.version,
        }


STDIO: Final = "-"
RETRY_PAUSES_S: Final = (1.0, 2.0, 4.0)
PART_TIMEOUT_S: Final = 60.0


@command_group("snapshot")
def snapshot_command() -> None:
    """The whole namespace as one JSON document: brokers with their topics, key-values, settings.

    \b
    routebook snapshot export fleet.json
    routebook snapshot import fleet.json --dry-run
    """


@snapshot_command.command("export")
@click.argument("file", default=STDIO)
@click.option("--from", "source", metavar="ADDRESS", help="Export from another name server, such as Apache's.")
@click.option(
    "--kv", "namespaces", multiple=True, metavar="NAMESPACE", help="With --from: also export these key-values."
)
@click.option("--tls", is_flag=True, help="With --from: encrypt the connection; the certificate is not verified.")
@with_service
def export(service: Service, *, file: str, source: str | None, namespaces: tuple[str, ...], tls: bool) -> None:
    """Write a snapshot to FILE, or to standard output.

    It contains key-values unmasked: if they contain secrets, protect the file.

    \b
    routebook snapshot export fleet.json
    routebook snapshot export java.json --from 10.0.0.9:9876
    """
    with ProgressLine() as line, _output(file) as output:
        if source is None:
            _export_service(service, output, line)
        else:
            options = CollectOptions(tuple(dict.fromkeys((ORDER_TOPIC_NAMESPACE, *namespaces))))
            snapshot = asyncio.run(_read_server(check_address("ADDRESS", source), options, tls, line))
            for part in encode_document(snapshot):
                output.write(part)
            for reason in snapshot.left_out:
                click.echo(f"Left out: {reason}.", err=True)


@snapshot_command.command("import")
@click.argument("file", default=STDIO)
@click.option("--dry-run", is_flag=True, help="Only report what would change.")
@click.option(
    "--replace", is_flag=True, help="Where the snapshot differs from the route table, write the snapshot's value."
)
@as_json
@with_service
def import_(service: Service, *, file: str, dry_run: bool, replace: bool, json_: bool) -> int:
    """Import a snapshot from FILE, or from standard input, into the route table.

    The whole snapshot is checked first. Nothing is deleted; brokers that do not exist expire like any silent broker.
    Importing the same snapshot again changes nothing, so after an interruption, repeat the import. Exit code 1: a value
    that differs was not replaced, or something could not be imported.

    \b
    routebook snapshot import fleet.json --dry-run
    routebook snapshot import fleet.json --replace
    """
    parts = parts_of(read_snapshot(file))
    with ProgressLine() as line:
        totals = _send(service, parts, replace=replace, dry_run=True, line=line)
        if not dry_run:
            totals = _send(service, parts, replace=replace, dry_run=False, line=line)
    if json_:
        print_json(totals.document(dry_run=dry_run))
    else:
        _print(totals, dry_run=dry_run)
    return exits.DONE if totals.is_complete else exits.ANSWER_IS_NO


def _export_service(service: Service, output: BinaryIO, line: ProgressLine) -> None:
    written = 0
    with service.connection_errors(), service.http.stream("GET", "/v1/snapshot") as answer:
        if not answer.is_success:
            answer.read()
            raise error_of(answer)
        for part in answer.iter_bytes():
            written += output.write(part)
            line.show("exported", f"{written / 1e6:.1f} MB")


async def _read_server(address: str, options: CollectOptions, tls: bool, line: ProgressLine) -> Snapshot:
    async with await NameServer.connect(address, tls=unverified_tls() if tls else None) as server:
        state = await collect_lists(server, options)
        topics = state.topics or frozenset()

        def report(done: int, total: int) -> None:
            line.show_routes(address, done, total)

        return snapshot_of(state.with_routes(await collect_routes(server, topics, report)), address)


@contextmanager
def _output(file: str) -> Iterator[BinaryIO]:
    """The file gets its name only when it is complete. Only its owner can read it."""
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


def _send(
    service: Service, parts: list[dict[str, Any]], *, replace: bool, dry_run: bool, line: ProgressLine
) -> ImportTotals:
    """Sends small parts, so that the service answers lookups in between."""
    totals = ImportTotals()
    query = {"dry_run": json.dumps(dry_run), "replace": json.dumps(replace)}
    for number, part in enumerate(parts, 1):
        totals.add(_send_one(service, query, part))
        line.show("checked" if dry_run else "imported", f"{number} of {len(parts)} parts")
    return totals


def _send_one(service: Service, query: dict[str, str], part: dict[str, Any]) -> Any:
    """Retries while the service is unavailable. What it imported already counts as the same."""
    for pause in (*RETRY_PAUSES_S, None):
        try:
            return service.request("PUT", "/v1/snapshot", params=query, body=part, timeout_seconds=PART_TIMEOUT_S)
        except exits.ServiceUnreachableError:
            if pause is None:
                raise
            time.sleep(pause)
    raise AssertionError


def _print(totals: ImportTotals, *, dry_run: bool) -> None:
    rows = [
        (step["action"], step["kind"], step["name"], name, _cell(now), _cell(then))
        for step in totals.steps
        for name, (now, then) in (step["fields"].items() if step["action"] != "create" else [("", (None, None))])
    ]
    if rows:
        print_table(("action", "kind", "name", "field", "namespace", "snapshot"), rows)
    for reason in totals.left_out:
        click.echo(f"Left out: {reason}.", err=True)
    for name in totals.turned_down:
        click.echo(f"Turned down: {name}; another address holds the seat with a higher state version.", err=True)
    click.echo(_summary(totals, dry_run=dry_run))


def _cell(value: object) -> object:
    return " ".join(str(item) for item in value) if isinstance(value, list) else value


def _summary(totals: ImportTotals, *, dry_run: bool) -> str:
    verb = "Would write" if dry_run else "Written"
    kinds = [f"{counts['create'] + counts['replace']} {kind}s" for kind, counts in totals.counts.items()]
    written = sum(counts["create"] + counts["replace"] for counts in totals.counts.values())
    kept = sum(counts["keep"] for counts in totals.counts.values())
    same = sum(counts["same"] for counts in totals.counts.values())
    what = f"{verb}: {', '.join(kinds)}" if written else f"{verb}: nothing"
    keeps = f"; {kept} differ and {'would remain' if dry_run else 'remain'} unchanged (--replace)" if kept else ""
    return f"{what}; {same} are the same{keeps}."
