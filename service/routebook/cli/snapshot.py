"""`routebook snapshot export|import`"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from routebook.cli.compare import unverified
from routebook.cli.progress import ProgressLine
from routebook.cli.service import Service, as_json, asks_service, error_of, print_json
from routebook.cli.snapshot_parts import Sum, parts_of, read_snapshot
from routebook.cli.tables import print_table
from routebook.client.name_server import NameServer
from routebook.compare.collecting import Questions, ask_lists, ask_routes, snapshot_of
from routebook.model.names import check_address
from routebook.model.snapshot import Snapshot
from routebook.model.topic import ORDER_TOPIC_NAMESPACE
from routebook.runtime import exits
from routebook.snapshots.document import encode_document

STDIO: Final = "-"
PAUSES_S: Final = (1.0, 2.0, 4.0)
PART_TIMEOUT_S: Final = 60.0


@click.group("snapshot")
def command() -> None:
    """The whole namespace as one JSON document: brokers with their topics, key-values, settings."""


@command.command("export")
@click.argument("file", default=STDIO)
@click.option("--from", "source", metavar="ADDRESS", help="Of another name server, Apache's too.")
@click.option("--kv", "namespaces", multiple=True, metavar="NAMESPACE", help="With --from: key-values to take as well.")
@click.option("--tls", is_flag=True, help="With --from: encrypt; the certificate is not verified.")
@asks_service
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


@command.command("import")
@click.argument("file", default=STDIO)
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--replace", is_flag=True, help="Where the route table says something else, take the snapshot's word.")
@as_json
@asks_service
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
    with service.reaching(), service.http.stream("GET", "/v1/snapshot") as answer:
        if not answer.is_success:
            answer.read()
            raise error_of(answer)
        for part in answer.iter_bytes():
            written += output.write(part)
            line.tell("exported", f"{written / 1e6:.1f} MB")


async def _ask(address: str, questions: Questions, tls: bool, line: ProgressLine) -> Snapshot:
    async with await NameServer.connect(address, tls=unverified() if tls else None) as server:
        said = await ask_lists(server, questions)
        topics = said.topics or frozenset()

        def tell(done: int, total: int) -> None:
            line.routes_of(address, done, total)

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
        line.tell("checked" if dry_run else "imported", f"{number} of {len(parts)} parts")
    return done


def _send_one(service: Service, query: dict[str, str], part: dict[str, Any]) -> Any:
    """A part that the service could not take just now is sent again: what it took already it takes as the same."""
    for pause in (*PAUSES_S, None):
        try:
            return service.ask("PUT", "/v1/snapshot", params=query, body=part, timeout_seconds=PART_TIMEOUT_S)
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
