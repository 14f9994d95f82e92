"""`routebook pipeline export`: writes the stream to a file for `backfill --import`. Does not start Spark."""

import base64
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from routebook_pipeline.cli.options import checked_namespace, checked_url_env, namespace_option, url_env_option
from routebook_pipeline.cli.output import output_file
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import HistoryError, HistoryForkError, HistoryMissingError

if TYPE_CHECKING:
    from routebook_pipeline.source.stream import StreamReader


@click.command("export", short_help="Write the changes in the store to a file.")
@click.option("--out", required=True, metavar="FILE", help="JSON lines with id and d; missing folders are created.")
@namespace_option
@url_env_option
def command(out: str, namespace: str, url_env: str) -> int:
    """Write the changes that are still in the store to a file: before they are trimmed, or for a lake elsewhere.

    `backfill --import FILE` reads it, and skips entries that the lake already has.
    """
    from routebook_pipeline.source.stream import StreamReader

    checked_namespace(namespace)
    checked_url_env(url_env)
    with Progress() as progress, StreamReader(url_env, namespace) as stream:
        progress.show(f"writing {out}")
        written = 0
        # After an error nothing is written: half a file would be a shorter history.
        with output_file(out) as temporary, temporary.open("w", encoding="utf-8") as file:
            for line in export_lines(stream):
                file.write(line)
                written += 1
        progress.log(f"{out}: {written} entries")
    return 0


def export_lines(stream: "StreamReader") -> Iterator[str]:
    """A line for each entry. The reader's errors advise on a lake, which continues from its position; an export starts
    from the beginning each time, so its errors are reworded here.
    """
    try:
        yield from _lines(stream)
    except HistoryMissingError as error:
        first = stream.first()
        changes = f"RB_MISSING: the changes {error.first} to {error.last} of namespace {stream.namespace!r}"
        if first is None or first.version > error.last:
            raise HistoryError(
                f"{changes} are gone: the stream was trimmed during the export. Nothing was written. Run it again; it "
                "will start at the first entry that is left."
            ) from error
        raise HistoryError(
            f"{changes} are no longer in the stream, though earlier ones are. No lake accepts a file with a hole, so "
            "nothing was written. Export from a copy of the store that still has them (name its variable with "
            "--url-env), or let a lake read this store: `ingest --on-loss record` records the hole."
        ) from error
    except HistoryForkError as error:
        raise HistoryError(
            f"RB_FORK: the store lost its last changes or was emptied during the export: namespace "
            f"{stream.namespace!r} was at version {error.ours} and is at {error.newest}. Nothing was written. Run it "
            "again to export what the store has now, or export from an older copy of the store (--url-env)."
        ) from error


def _lines(stream: "StreamReader") -> Iterator[str]:
    """HistoryMissingError if entries are missing, because the file would have a hole."""
    from routebook_pipeline.source.options import SourceOptions
    from routebook_pipeline.source.reading import ReadOptions, read

    options = ReadOptions(SourceOptions.chunk, record_losses=False)
    for batch in read(stream, stream.earliest(), stream.newest().id, options):
        for entry in batch.to_pylist():
            yield json.dumps({"id": entry["entry_id"], "d": _text(entry["payload"])}) + "\n"


def _text(payload: bytes) -> str:
    """A payload that is not UTF-8 cannot be in JSON. It is replaced by text that is unreadable for the lake too."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return f"not UTF-8: {base64.b64encode(payload).decode()}"
