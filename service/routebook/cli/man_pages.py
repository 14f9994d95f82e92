"""`routebook man-pages FOLDER`: manual pages, made from the help of the commands.

`make reference` writes those that the wheel contains.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from routebook.cli.command import HELP_ALL, Command, command

SHARED_SECTIONS: Final = ("Output", "Connection")
"""Sections with the options that almost every command has."""
EXIT_CODES: Final = (
    ("0", "Done."),
    ("1", "The answer is no: not found, or different."),
    ("2", "Wrong usage."),
    ("3", "The service, or the store, cannot be reached."),
    ("4", "History is missing."),
)


@command("man-pages", hidden=True)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.pass_context
def man_pages_command(context: click.Context, folder: Path) -> None:
    """Write one manual page for each command into FOLDER.

    \b
    routebook man-pages /usr/local/share/man/man1
    routebook man-pages build/man
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in man_pages(context.find_root().command):
        (folder / f"{name}.1").write_text(text)


@dataclass(frozen=True, slots=True)
class CommandHelp:
    """The help of a command, from which its manual page and its section of docs/reference/commands.md are made."""

    path: str
    """As it is typed: `routebook settings set`."""
    summary: str
    usage: str
    """What follows the path."""
    paragraphs: list[str]
    options: dict[str, list[tuple[str, str]]]
    """Heading of a section -> names and meaning of each argument and option."""
    examples: list[str]
    inner: list["CommandHelp"]


def describe_commands(root: click.Command) -> CommandHelp:
    """Without hidden commands, and without those of other packages."""
    context = click.Context(root, info_name="routebook")
    # A manual is complete: `serve --help` shows only the settings that are set often.
    context.meta[HELP_ALL] = True
    return _describe(root, context)


def _describe(described: click.Command, context: click.Context) -> CommandHelp:
    options: dict[str, list[tuple[str, str]]] = {}
    for param in described.get_params(context):
        record = param.get_help_record(context)
        if record is not None and record[1]:
            options.setdefault(getattr(param, "section", "Options"), []).append(record)
    # A group finds its own commands as well as those of other packages, which have pages of their own.
    names = described.list_commands(context) if isinstance(described, click.Group) else []
    found = (
        [(name, described.get_command(context, name)) for name in names] if isinstance(described, click.Group) else []
    )
    own = [(name, one) for name, one in found if isinstance(one, Command) and not one.hidden]
    # The paragraph after \b has the examples.
    paragraphs = [part for part in re.split(r"\n\s*\n", described.help or "") if "\b" not in part]
    return CommandHelp(
        path=context.command_path,
        summary=described.get_short_help_str(200),
        usage=" ".join(described.collect_usage_pieces(context)),
        paragraphs=[" ".join(paragraph.split()) for paragraph in paragraphs],
        options=options,
        examples=described.examples if isinstance(described, Command) else [],
        inner=[_describe(one, click.Context(one, info_name=name, parent=context)) for name, one in own],
    )


def man_pages(root: click.Command) -> Iterator[tuple[str, str]]:
    """Name and text of each page. Commands of other packages have pages of their own."""
    described = describe_commands(root)
    yield "routebook", _page(described)
    for one in described.inner:
        yield one.path.replace(" ", "-"), _page(one)


def _page(described: CommandHelp) -> str:
    is_root = described.path == "routebook"
    title = described.path.replace(" ", "-")
    lines = [f'.TH {title.upper()} 1 "" "Routebook" "Routebook Manual"', ".SH NAME"]
    lines.append(f"{_plain(title)} \\- {_plain(described.summary.rstrip('.'))}")
    lines += [".SH SYNOPSIS", *_synopsis(described)]
    lines += [".SH DESCRIPTION", *_description(described)]
    lines += _options(described, ".SH")
    if described.inner:
        lines.append(".SH COMMANDS")
        for inner in described.inner:
            if is_root:
                lines += [".TP", f".B {_plain(inner.path.replace(' ', '-'))}(1)", _plain(inner.summary)]
                continue
            lines += [f".SS {_plain(inner.path.rpartition(' ')[2])}", *_synopsis(inner), ".PP", *_description(inner)]
            lines += _options(inner, ".PP", own_only=True)
            lines += _examples(inner, ".PP")
    lines += _examples(described, ".SH EXAMPLES")
    lines.append(".SH EXIT STATUS")
    for code, meaning in EXIT_CODES:
        lines += [".TP", f".B {code}", meaning]
    if not is_root:
        lines += [".SH SEE ALSO", ".BR routebook (1)"]
    return "\n".join(lines) + "\n"


def _synopsis(described: CommandHelp) -> list[str]:
    return [f".B {_plain(described.path)}", _plain(described.usage)]


def _description(described: CommandHelp) -> list[str]:
    lines: list[str] = []
    for paragraph in described.paragraphs:
        lines += [*([".PP"] if lines else []), _plain(paragraph)]
    return lines


def _options(described: CommandHelp, macro: str, *, own_only: bool = False) -> list[str]:
    lines: list[str] = []
    for section, records in described.options.items():
        if own_only and section in SHARED_SECTIONS:
            continue
        lines.append(f"{macro} {section.upper()}" if macro == ".SH" else macro)
        for names, meaning in records:
            lines += [".TP", f".B {_plain(names)}", _plain(meaning)]
    return lines


def _examples(described: CommandHelp, heading: str) -> list[str]:
    examples = described.examples
    return [heading, ".nf", *map(_plain, examples), ".fi"] if examples else []


def _plain(text: str) -> str:
    """Escapes what troff would interpret. A hyphen becomes a minus, so that options can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in text)
    return f"\\&{text}" if text.startswith((".", "'")) else text
