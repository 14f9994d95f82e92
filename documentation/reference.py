"""Writes what is made from the code, and the pictures that are drawn from texts: `make reference`.

`tests/documents/test_reference.py` fails when one of them is not current.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from documentation.pictures import pictures
from documentation.site import ROOT
from routebook.cli.main import commands
from routebook.cli.man_pages import EXIT_CODES, SHARED_SECTIONS, CommandHelp, describe_commands, man_pages
from routebook.cli.serve import setting_sections
from routebook.http_api.app import build_operations
from routebook.settings.catalogue import Setting, all_settings
from routebook.settings.loading import default_of
from tests.architecture.lua_scripts import LuaScript, scripts

REFERENCE = ROOT / "docs" / "reference"
MANUAL = ROOT / "service" / "man"

MADE_FROM = "This page is made from {source} by `make reference`; do not edit it."


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        _paragraph(MADE_FROM.format(source="[`settings/fields.py`](../../service/routebook/settings/fields.py)")),
        "",
        _paragraph(
            "Each setting can be given as a flag of `routebook serve` and `routebook up`, as a variable, at run time, "
            "or in a file; [operations](../operations.md#settings) says which of them wins. The flag and the variable "
            "follow from the name: `lease_ms` is `--lease-ms` and `ROUTEBOOK_LEASE_MS`. The name is also the key of a "
            "TOML file given with `-c`. The end of the name is the unit. *Run time* marks the settings that "
            "`routebook settings set` changes for all workers."
        ),
        "",
    ]
    by_section: dict[str, list[Setting]] = {}
    for name, section in setting_sections().items():
        by_section.setdefault(section, []).append(all_settings()[name])
    lines += [_contents(by_section), ""]
    for section, settings in by_section.items():
        header = ("setting", "default", "allowed", "run time", "RocketMQ's name", "meaning")
        lines += [f"## {section}", "", *_table(header, map(_setting_row, settings)), ""]
    return _page(lines)


def _setting_row(one: Setting) -> tuple[str, ...]:
    return (
        f"`{one.name}`",
        _setting_default(one),
        _cell(one.allowed),
        "yes" if one.about.at_run_time else "",
        _code(one.about.properties_name),
        _cell(one.about.why) + (" Masked wherever it is shown." if one.about.secret else ""),
    )


def _setting_default(one: Setting) -> str:
    serve, up = (one.text(default_of(one, profile)) for profile in ("serve", "up"))
    return _code(serve) or "none" if serve == up else f"{_code(serve) or 'none'}; with `up` {_code(up) or 'none'}"


def commands_page() -> str:
    root = describe_commands(commands)
    lines = [
        "# Commands",
        "",
        _paragraph(
            MADE_FROM.format(source="the help of the commands")
            + " The manual pages of the wheel (`man routebook-status`) have the same text."
        ),
        "",
        _paragraph(
            "[The command line](../command-line.md) explains addresses, contexts, tokens and the forms of output; "
            "[daily tasks](../daily-tasks.md) shows commands with their output. The commands of `routebook pipeline` "
            "have [a page of their own](../pipeline-commands.md)."
        ),
        "",
        _contents(one.path.removeprefix("routebook ") for one in root.inner),
        "",
        "## Exit codes",
        "",
        *_table(("code", "meaning"), EXIT_CODES),
        "",
        "## Options of many commands",
        "",
        _paragraph("Commands that contact a service or print a list accept these, before or after their name."),
        "",
        *_option_tables(root, SHARED_SECTIONS),
    ]
    for one in root.inner:
        lines += _command_section(one, "##")
    return _page(lines)


def _command_section(one: CommandHelp, heading: str) -> Iterator[str]:
    yield from (f"{heading} {one.path.removeprefix('routebook ')}", "")
    for paragraph in one.paragraphs:
        yield from (_paragraph(_cell(paragraph)), "")
    yield from ("```text", f"{one.path} {one.usage}".rstrip(), "```", "")
    of_settings = set(setting_sections().values())
    yield from _option_tables(one, [name for name in one.options if name not in {*SHARED_SECTIONS, *of_settings}])
    if of_settings & one.options.keys():
        yield from ("Every [setting](settings.md) is an option too.", "")
    if one.examples:
        yield from ("Examples:", "", "```sh", *one.examples, "```", "")
    for inner in one.inner:
        yield from _command_section(inner, f"{heading}#")


def _option_tables(one: CommandHelp, sections: Iterable[str]) -> Iterator[str]:
    for section in sections:
        title = "option" if section == "Options" else f"option: {section.lower()}"
        rows = [
            (_code(names), _cell(meaning)) for names, meaning in one.options.get(section, []) if "--help" not in names
        ]
        if rows:
            yield from (*_table((title, "meaning"), rows), "")


def http_page() -> str:
    document = build_operations(None).openapi()
    lines = [
        "# HTTP API: all requests",
        "",
        _paragraph(MADE_FROM.format(source="the OpenAPI document of the service (`/openapi.json`)")),
        "",
        _paragraph(
            "[The HTTP API](../http-api.md) shows how it is used, with examples. 🔒 marks requests that need a token "
            "([roles](../http-api.md#tokens-and-roles))."
        ),
        "",
    ]
    tags = {tag["name"]: tag["description"] for tag in document["tags"]}
    lines += [_contents([*tags, "schemas"]), ""]
    for tag, description in tags.items():
        lines += [f"## {tag}", "", _paragraph(description), ""]
        for path, item in document["paths"].items():
            for method, operation in item.items():
                if operation["tags"][0] == tag:
                    lines += _operation_section(method, path, operation)
    lines += ["## schemas", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += [f"### {name}", "", *_schema_section(schema)]
    return _page(lines)


def _operation_section(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    lock = " 🔒" if operation.get("security") else ""
    yield from (f"### {method.upper()} {path}", "", f"**{operation['summary']}**{lock}", "")
    if text := operation.get("description"):
        for paragraph in text.strip().split("\n\n"):
            yield from (_paragraph(paragraph), "")
    parameters = [
        (f"`{one['name']}`", one["in"], _type(one["schema"]), _cell(one.get("description", "")))
        for one in operation.get("parameters", [])
    ]
    if parameters:
        yield from (*_table(("parameter", "in", "type", "meaning"), parameters), "")
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield from (f"Body (`{kind}`): {_type(content['schema'])}", "")
    yield from (
        *_table(("status", "answer"), map(_response_row, *zip(*sorted(operation["responses"].items()), strict=True))),
        "",
    )


def _response_row(status: str, response: dict[str, Any]) -> tuple[str, str]:
    schemas = [
        content.get("schema", {}) for kind, content in response.get("content", {}).items() if "problem" not in kind
    ]
    bodies = " or ".join(dict.fromkeys(_type(schema) for schema in schemas if schema))
    description = response["description"].replace("Successful Response", "").strip()
    return status, "; ".join(part for part in (bodies, _cell(description)) if part)


def _schema_section(schema: dict[str, Any]) -> Iterator[str]:
    if text := schema.get("description"):
        yield from (_cell(" ".join(text.split())), "")
    required = schema.get("required", [])
    rows = [
        (f"`{name}`", _type(one), "yes" if name in required else "", _cell(one.get("description", "")))
        for name, one in schema.get("properties", {}).items()
    ]
    if rows:
        yield from (*_table(("field", "type", "always", "meaning"), rows), "")


def _type(schema: dict[str, Any]) -> str:
    """In words, with a link where the type has a section of its own."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if kinds := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return " or ".join(_type(kind) for kind in kinds)
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(f"`{value}`" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object, values: {_type(schema['additionalProperties'])}"
    return _plain_type(schema)


def _plain_type(schema: dict[str, Any]) -> str:
    kind = {"string": "text"}.get(schema.get("type", "anything"), schema.get("type", "anything"))
    limits = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    default = [f"default {schema['default']}"] if schema.get("default") not in (None, "") else []
    return ", ".join([" ".join([kind, *limits]), *default])


def scripts_page() -> str:
    lines = [
        "# Lua scripts",
        "",
        _paragraph(MADE_FROM.format(source="the headers of the scripts")),
        "",
        _paragraph(
            "Every write to the store is one of these scripts. [lua/README.md](../../lua/README.md) explains their "
            "form, their statuses and their limits. `KEYS[1]` is always `meta`, the one key from which a script builds "
            "the names of all others."
        ),
        "",
        _contents(scripts()),
        "",
    ]
    for name, script in scripts().items():
        lines += _script_section(name, script)
    return _page(lines)


def _script_section(name: str, script: LuaScript) -> Iterator[str]:
    text, _, _ = script.header.partition("\nKEYS[1]")
    yield from (f"## {name}", "", f"[`lua/{name}.lua`](../../lua/{name}.lua)", "", _paragraph(_cell(text)), "")
    _, _, arguments = script.header.partition("\nARGV[1]")
    if arguments:
        # The header is a table already: names, and meanings in a column of their own.
        yield from ("```text", f"ARGV[1]{arguments}".rstrip(), "```", "")
    else:
        yield from ("```text", f"reply{script.header.partition(chr(10) + 'reply')[2]}".rstrip(), "```", "")


# Markdown


def _page(lines: Iterable[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _paragraph(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 100, break_long_words=False, break_on_hyphens=False)


def _contents(headings: Iterable[str]) -> str:
    return _paragraph("Contents: " + " · ".join(f"[{one}](#{_anchor(one)})" for one in headings))


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    header = tuple(header)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [
        f"| {' | '.join(header)} |",
        "|" + "---|" * len(header),
        *(re.sub(r" {2,}\|", " |", line) for line in lines),
    ]


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`" if text else ""


def _cell(text: str) -> str:
    """Text that is shown as it is. What stands between backticks is shown so anyway."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    return "`".join(part if at % 2 else re.sub(r"([<*]|\b_|_\b)", r"\\\1", part) for at, part in enumerate(parts))


GENERATED: dict[Path, Callable[[], str]] = {
    REFERENCE / "settings.md": settings_page,
    REFERENCE / "commands.md": commands_page,
    REFERENCE / "http-requests.md": http_page,
    REFERENCE / "scripts.md": scripts_page,
}


def generated() -> Iterator[tuple[Path, str]]:
    """Path and text of each file that is made from the code."""
    for path, text in GENERATED.items():
        yield path, text()
    yield from pictures().items()
    for name, page in man_pages(commands):
        yield MANUAL / f"{name}.1", page


def main() -> None:
    for page in MANUAL.glob("*.1"):
        page.unlink()
    for path, text in generated():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
