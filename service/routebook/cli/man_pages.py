"""`routebook man-pages FOLDER`: manual pages, made from the help of the commands.

`make man` writes those that the wheel contains.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from routebook.cli.command import HELP_ALL, Command, command

_NAMES_OF_SECTIONS = {"Options": "OPTIONS", "Output": "OUTPUT", "Connection": "CONNECTION"}
_EXIT_CODES = (
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


def man_pages(root: click.Command) -> Iterator[tuple[str, str]]:
    """Name and text of each page. Commands of other packages have pages of their own."""
    context = click.Context(root, info_name="routebook")
    # A manual is complete: `serve --help` shows only the settings that are set often.
    context.meta[HELP_ALL] = True
    yield "routebook", _page("routebook", root, context)
    if isinstance(root, click.Group):
        for name in root.list_commands(context):
            found = root.get_command(context, name)
            if isinstance(found, Command) and not found.hidden and not isinstance(found, type(root)):
                yield f"routebook-{name}", _page(name, found, click.Context(found, info_name=name, parent=context))


def _page(name: str, page_command: click.Command, context: click.Context) -> str:
    title = "routebook" if name == "routebook" else f"routebook-{name}"
    lines = [f'.TH {title.upper()} 1 "" "Routebook" "Routebook Manual"', ".SH NAME"]
    lines.append(f"{_plain(title)} \\- {_plain(page_command.get_short_help_str(200).rstrip('.'))}")
    lines += [".SH SYNOPSIS", *_synopsis(context)]
    lines += [".SH DESCRIPTION", *_description(page_command)]
    lines += _options(page_command, context, ".SH")
    if isinstance(page_command, click.Group):
        lines.append(".SH COMMANDS")
        for inner_name, inner, inner_context in _inner(page_command, context):
            if name == "routebook":
                lines += [".TP", f".B routebook-{_plain(inner_name)}(1)", _plain(inner.get_short_help_str(200))]
                continue
            lines += [f".SS {_plain(inner_name)}", *_synopsis(inner_context), ".PP", *_description(inner)]
            lines += _options(inner, inner_context, ".PP", own_only=True)
            lines += _examples(inner, ".PP")
    lines += _examples(page_command, ".SH EXAMPLES")
    lines.append(".SH EXIT STATUS")
    for code, meaning in _EXIT_CODES:
        lines += [".TP", f".B {code}", meaning]
    if name != "routebook":
        lines += [".SH SEE ALSO", ".BR routebook (1)"]
    return "\n".join(lines) + "\n"


def _inner(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if found is not None and not found.hidden:
            yield name, found, click.Context(found, info_name=name, parent=context)


def _synopsis(context: click.Context) -> list[str]:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    return [f".B {_plain(context.command_path)}", _plain(pieces)]


def _description(page_command: click.Command) -> list[str]:
    """Paragraphs of the help, without its examples."""
    text = page_command.help or ""
    paragraphs = [part for part in re.split(r"\n\s*\n", text) if "\b" not in part]
    lines: list[str] = []
    for paragraph in paragraphs:
        lines += [*([".PP"] if lines else []), _plain(" ".join(paragraph.split()))]
    return lines


def _options(page_command: click.Command, context: click.Context, macro: str, *, own_only: bool = False) -> list[str]:
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in page_command.get_params(context):
        record = param.get_help_record(context)
        if record is not None and record[1]:
            sections.setdefault(getattr(param, "section", "Options"), []).append(record)
    lines: list[str] = []
    for section, records in sections.items():
        if own_only and section in ("Output", "Connection"):
            continue
        lines.append(f"{macro} {_NAMES_OF_SECTIONS.get(section, section.upper())}" if macro == ".SH" else macro)
        for names, meaning in records:
            lines += [".TP", f".B {_plain(names)}", _plain(meaning)]
    return lines


def _examples(page_command: click.Command, heading: str) -> list[str]:
    examples = page_command.examples if isinstance(page_command, Command) else []
    return [heading, ".nf", *map(_plain, examples), ".fi"] if examples else []


def _plain(text: str) -> str:
    """Escapes what troff would interpret. A hyphen becomes a minus, so that options can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in text)
    return f"\\&{text}" if text.startswith((".", "'")) else text
