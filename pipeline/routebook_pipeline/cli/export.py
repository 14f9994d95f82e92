"""`routebook pipeline export`: the stream as files, for `backfill --import`. Starts no Spark."""

import base64
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from routebook_pipeline.cli.options import (
    NAMESPACE_VARIABLE,
    STORE_VARIABLE,
    checked_namespace,
    checked_url_env,
)
from routebook_pipeline.cli.output import file_for
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import HistoryError, HistoryForkError, HistoryMissingError

if TYPE_CHECKING:
    from routebook_pipeline.source.stream import StreamReader


@click.command("export")
@click.option("--out", required=True, metavar="FILE", help="JSON lines with id and d; its folder is made.")
@click.option("--namespace", envvar=NAMESPACE_VARIABLE, default="default", show_default=True, show_envvar=True)
@click.option(
    "--url-env", default=STORE_VARIABLE, show_default=True, metavar="VARIABLE", help="Has the store's address."
)
def command(out: str, namespace: str, url_env: str) -> int:
    """Write the changes that the store still holds to a file: before they are trimmed, or for a lake elsewhere.

    `backfill --import FILE` takes them in; what a lake holds already, it leaves out.
    """
    from routebook_pipeline.source.stream import StreamReader

    checked_namespace(namespace)
    checked_url_env(url_env)
    with Progress() as progress, StreamReader(url_env, namespace) as stream:
        progress.doing(f"writing {out}")
        written = 0
        # Half a file would be a shorter history.
        with file_for(out) as fresh, fresh.open("w", encoding="utf-8") as file:
            for line in lines_of(stream):
                file.write(line)
                written += 1
        progress.log(f"{out}: {written} entries")
    return 0


def lines_of(stream: "StreamReader") -> Iterator[str]:
    """A line an entry. The errors of reading are worded for a lake, which goes on behind its last place; an export
    begins anew each time.
    """
    try:
        yield from _lines(stream)
    except HistoryMissingError as error:
        first = stream.first()
        are = f"RB_MISSING: the changes {error.first} to {error.last} of namespace {stream.namespace!r} are"
        if first is None or first.version > error.last:
            raise HistoryError(
                f"{are} gone: the stream was trimmed while it was read. Nothing was written. Run it again: it begins "
                "with the first entry that is there."
            ) from error
        raise HistoryError(
            f"{are} no longer in the stream, though earlier ones are: no lake takes a file with a hole, and nothing "
            "was written. Export from a copy of the store that still has them (its variable: --url-env), or let "
            "a lake read this one: `ingest --on-loss record` notes the hole."
        ) from error
    except HistoryForkError as error:
        raise HistoryError(
            f"RB_FORK: the store lost its last changes or was emptied while it was read: namespace "
            f"{stream.namespace!r} was at version {error.ours} and is at {error.newest}. Nothing was written. Run it "
            "again for what the store holds now, or export from a copy of it from before (--url-env)."
        ) from error


def _lines(stream: "StreamReader") -> Iterator[str]:
    """HistoryMissingError when some are not there: the file would have a hole."""
    from routebook_pipeline.source.options import SourceOptions
    from routebook_pipeline.source.reading import ReadOptions, read

    how = ReadOptions(SourceOptions.chunk, record_losses=False)
    for batch in read(stream, stream.earliest(), stream.newest().id, how):
        for entry in batch.to_pylist():
            yield json.dumps({"id": entry["entry_id"], "d": _text(entry["payload"])}) + "\n"


def _text(payload: bytes) -> str:
    """What is no text stays unreadable, and is told in letters: JSON has no other way."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return f"not UTF-8: {base64.b64encode(payload).decode()}"
