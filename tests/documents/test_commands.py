"""Every command that a document shows exists, with its options: of ours, by the command line's own parser.

Most blocks also run: test_pages_run.py, tests/end_to_end, and the tests of single pages. What needs a cluster, another
machine or a package manager is checked here only.
"""

import re
import shutil
import subprocess
from functools import cache

import click
import pytest
from starlette.routing import compile_path

from routebook.cli.main import commands
from routebook.errors import RoutebookError
from routebook.http_api.app import build_operations
from routebook_pipeline.errors import PipelineError
from tests.architecture.sources import ROOT
from tests.documents.shell_blocks import Block, blocks, blocks_of, commands_of

SHELL = [block for block in blocks() if block.language in {"sh", "console"}]
OTHERS = [block for block in blocks() if block.language not in {"sh", "console"}]
OURS = {"routebook", ".venv/bin/routebook"}
LANGUAGES = {"sh", "console", "text", "json", "yaml", "python", "toml", "ini", "lua", "properties"}
"""`text` shows output, pictures and grammars: nothing to paste."""

ELSEWHERE = {
    *("kubectl", "helm"),  # tests/chart/test_document.py checks their options and values
    *("docker", "apt-get", "systemctl", "systemd-analyze", "journalctl", "useradd", "install"),
    *("mqadmin", "mqnamesrv", "mqbroker", "java", "mvn"),
    *("spark-submit", "redis-cli", "redis-server", "old-redis-server", "openssl", "haproxy", "promtool", "valkey-cli"),
    *(
        "git",
        "sh",
        "cd",
        "ls",
        "cat",
        "cp",
        "mv",
        "rm",
        "mkdir",
        "grep",
        "sed",
        "sleep",
        "kill",
        "echo",
        "eval",
        "test",
    ),
    *(
        "python3",
        "scp",
        "ssh",
        "man",
        "head",
        "tail",
        "source",
        "sha256sum",
        "chmod",
        "chown",
        "tee",
        "wait",
        "jq",
        "[",
    ),
    *("until", "true", "mkfifo", "seq", "sort", "uniq", "cmp", "nohup", "date", "py-spy"),
}
"""Programs that are not ours."""


def name_of(block: Block) -> str:
    return block.name


def test_every_block_has_a_language() -> None:
    """So that no command can hide in a block that no test reads."""
    assert [block.name for block in blocks() if block.language not in LANGUAGES] == []


def test_what_can_be_pasted_is_marked_as_shell() -> None:
    shown = re.compile(
        r"^\s*(?:\$ )?(?:routebook|\.venv/bin/\S+|curl|make|kubectl|helm|docker|pip|python3?|apt-get) \S"
    )
    hidden = [
        block.name
        for block in OTHERS
        if any(shown.match(line) for line in block.body.splitlines()) and not is_usage(block)
    ]
    assert hidden == []


def is_usage(block: Block) -> bool:
    """The grammar of one command, in the page that is made from the parser."""
    return block.page == "docs/reference/commands.md" and block.body.count("\n") == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_shell_accepts_every_block() -> None:
    wrong = []
    for block in SHELL:
        done = subprocess.run(["bash", "-n", "-c", block.body], capture_output=True, text=True, check=False)
        if done.returncode:
            wrong.append((block.name, done.stderr))
    assert wrong == []


@pytest.mark.parametrize("block", SHELL, ids=name_of)
def test_every_command_of_a_block_exists_with_its_options(block: Block) -> None:
    assert [fault for command in commands_of(block.body) if (fault := fault_of(command))] == []


INLINE = sorted(
    {
        (block_page, code)
        for block_page in {block.page for block in blocks()}
        for code in re.findall(r"`(routebook [a-z][^`]*)`", re.sub(r"\s+", " ", (ROOT / block_page).read_text()))
    }
)


@pytest.mark.parametrize(("page", "code"), INLINE, ids=[f"{page}: {code}" for page, code in INLINE])
def test_a_command_in_a_sentence_exists_with_its_options(page: str, code: str) -> None:
    for command in commands_of(code.replace("|", "/").replace("<", "").replace(">", "")):
        assert fault_of_routebook(expand(command)[1:], is_sentence=True) is None


def expand(command: list[str]) -> list[str]:
    """`routebook expiry status/release` names several commands; the first stands for them."""
    return [re.sub(r"^([a-z-]+)/[a-z/|-]+$", r"\1", word) for word in command]


# What a command may be


def fault_of(command: list[str]) -> str | None:
    program, *arguments = command
    name = program.rpartition("/")[2]
    if name == "routebook":
        return fault_of_routebook(arguments)
    if name == "make":
        return fault_of_make(arguments)
    if name == "curl":
        return fault_of_curl(arguments)
    if name in {"python", "pytest"}:
        return fault_of_python(arguments if name == "python" else ["-m", "pytest", *arguments])
    if name == "pip":
        return fault_of_pip(arguments)
    if "/" in program:
        return None if (ROOT / program).is_file() else f"{program} does not exist"
    return None if program in ELSEWHERE else f"{program} is not known"


def fault_of_routebook(arguments: list[str], *, is_sentence: bool = False) -> str | None:
    """What the parser complains about. Nothing is carried out. A sentence may leave out arguments, or name them."""
    is_shortened = is_sentence or "…" in arguments
    arguments = [argument for argument in arguments if argument not in {"…", "[OPTIONS]"}]
    found: click.Command = commands
    try:
        context = found.make_context("routebook", list(arguments))
        while isinstance(found, click.Group) and (rest := [*context._protected_args, *context.args]):
            name, inner, rest = found.resolve_command(context, rest)
            assert inner is not None
            found = inner
            context = found.make_context(name, rest, parent=context)
    except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):  # after --help, or without a subcommand
        return None
    except (click.BadParameter, RoutebookError, PipelineError) as error:
        return None if is_shortened else f"{' '.join(arguments)}: {error}"
    except click.UsageError as error:
        return f"{' '.join(arguments)}: {error.format_message()}"
    return None


def fault_of_make(arguments: list[str]) -> str | None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    unknown = [one for one in arguments if "=" not in one and one not in targets]
    return f"make {unknown[0]}: no such target" if unknown else None


def fault_of_curl(arguments: list[str]) -> str | None:
    """Checks that the API has this path, and that the path accepts the method."""
    method = arguments[arguments.index("-X") + 1].lower() if "-X" in arguments else "get"
    for argument in arguments:
        found = re.match(r"(?:https?://[^/]+)?(?P<path>/[^?]*)(?:\?.*)?$", argument)
        if (
            found
            and argument.startswith("http")
            and not any(
                methods & {method, "any"} for pattern, methods in api_paths() if pattern.fullmatch(found["path"])
            )
        ):
            return f"{method.upper()} {found['path']} is not in the API"
    return None


@cache
def api_paths() -> list[tuple[re.Pattern[str], set[str]]]:
    paths = {path: set(item) for path, item in build_operations(None).openapi()["paths"].items()}
    others = ("/livez", "/readyz", "/metrics", "/openapi.json", "/docs", "/", "/{place}")
    return [(compile_path(path)[0], methods) for path, methods in paths.items()] + [
        (re.compile(re.escape(path)), {"any"}) for path in others
    ]


def fault_of_python(arguments: list[str]) -> str | None:
    for argument in arguments:
        is_file = argument.endswith(".py") or argument.startswith(("tests", "benchmarks"))
        path = argument.partition("::")[0]
        if is_file and not any(
            (ROOT / one).exists() for one in (path, path.replace(".", "/"), f"{path.replace('.', '/')}.py")
        ):
            return f"{argument} does not exist"
    return None


def fault_of_pip(arguments: list[str]) -> str | None:
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    for name in re.findall(r"routebook\[(\w+)\]", " ".join(arguments)):
        if name not in extras:
            return f"there is no extra {name}"
    return None


# A wrong command is found


@pytest.mark.parametrize(
    "script",
    [
        "routebook statsu",
        "routebook status --no-such-option",
        "routebook kv get",
        "echo x | routebook settings list --colour",
        'x="$(routebook no-such)"',
        "make no-such-target",
        "curl http://127.0.0.1:8080/v1/no-such",
        "curl -X PUT http://127.0.0.1:8080/v1/status",
        ".venv/bin/python -m benchmarks.no_such",
        "pip install 'routebook[nothing]'",
        "deploy/no_such.sh",
        "frobnicate now",
    ],
)
def test_a_wrong_command_is_found(script: str) -> None:
    assert [fault for command in commands_of(script) if (fault := fault_of(command))]


def test_words_are_split_as_a_shell_does() -> None:
    script = (
        'A=1 curl -d \'{\n "a": 1}\' \\\n  http://x >out 2>&1; B="$(date +%s)" # a | b\nfor x in a; do ls "$x"; done'
    )
    assert list(commands_of(script)) == [["date", "+%s"], ["curl", "-d", '{\n "a": 1}', "http://x"], ["ls", "$x"]]


def test_indented_blocks_and_prompts_are_read() -> None:
    text = "- x\n\n    ```sh\n    ls\n    ```\n\n```console\n$ make up\nup\n```\n"
    assert [(block.line, block.language, block.body) for block in blocks_of("p", text)] == [
        (3, "sh", "ls"),
        (7, "console", "make up"),
    ]
