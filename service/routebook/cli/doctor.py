"""`routebook doctor`: what is wrong here, and how to put it right. Works without a running service."""

import asyncio
import os
from pathlib import Path

import click

from routebook.cli import exits
from routebook.cli.service import DEFAULT_URL, TOKEN_VARIABLE, URL_VARIABLE, print_json
from routebook.errors import RoutebookError
from routebook.process.diagnosis import Note, diagnose_machine, diagnose_service, diagnose_store
from routebook.settings import Loaded, load

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("ERROR", "red")}


@click.command("doctor")
@click.option("-c", "file", type=click.Path(path_type=Path), metavar="FILE", help="The service's settings file.")
@click.option("--redis-url", default=None, metavar="URL", help="The store to look at.")
@click.option("--url", default=None, help=f"The service to look at; else {URL_VARIABLE}, else {DEFAULT_URL}.")
@click.option("--json", "json_", is_flag=True, help="Print JSON, for programs.")
def command(file: Path | None, redis_url: str | None, url: str | None, json_: bool) -> int:
    """Look at settings, store, clock, versions, ports and the running service; say how to put right what is wrong.

    Exit codes: 0 nothing is wrong, 1 something is, 2 the settings are wrong, 3 the store cannot be reached.
    """
    notes, code = _examine(file, redis_url, url or os.environ.get(URL_VARIABLE) or DEFAULT_URL)
    if json_:
        print_json([note.as_dict() for note in notes])
    else:
        _print(notes)
    return code


def _examine(file: Path | None, redis_url: str | None, url: str) -> tuple[list[Note], int]:
    try:
        loaded = load({"redis_url": redis_url}, os.environ, file, "serve")
    except RoutebookError as error:
        return [Note("error", "settings", error.message, error.advice)], exits.WRONG_USAGE
    notes = [_settings_note(loaded), *diagnose_machine(loaded.settings)]
    store_notes, reached = asyncio.run(diagnose_store(loaded.settings))
    notes += store_notes
    notes += diagnose_service(url, os.environ.get(TOKEN_VARIABLE, ""))
    if not reached:
        return notes, exits.UNREACHABLE
    return notes, exits.ANSWER_IS_NO if any(note.level == "error" for note in notes) else exits.DONE


def _settings_note(loaded: Loaded) -> Note:
    set_ones = sorted(name for name, origin in loaded.origins.items() if origin != "default")
    if loaded.warnings:
        return Note("warning", "settings", " ".join(loaded.warnings), "Remove them, or leave them for Apache's.")
    return Note("ok", "settings", f"in order; set: {', '.join(set_ones) or 'none, all defaults'}")


def _print(notes: list[Note]) -> None:
    width = max(len(note.subject) for note in notes)
    for note in notes:
        mark, colour = _MARKS[note.level]
        click.echo(f"{click.style(mark.ljust(7), fg=colour)}  {note.subject.ljust(width)}  {note.message}")
        if note.advice and note.level != "ok":
            click.echo(f"{'':7}  {'':{width}}  -> {note.advice}")
