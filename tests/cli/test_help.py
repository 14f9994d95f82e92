"""The help of every command: two examples that can be typed, sections, and the nearest name for a typing error."""

import shlex
from collections.abc import Iterator

import click
import pytest

from routebook.cli.command import Command
from routebook.cli.main import commands, run


def all_commands() -> Iterator[tuple[str, Command]]:
    """Our own; commands of other packages have tests of their own."""

    def below(path: list[str], command: click.Command, context: click.Context) -> Iterator[tuple[str, Command]]:
        if isinstance(command, Command):
            yield " ".join(path), command
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                if inner is not None and not inner.hidden:
                    inner_context = click.Context(inner, info_name=name, parent=context)
                    yield from below([*path, name], inner, inner_context)

    return below(["routebook"], commands, click.Context(commands, info_name="routebook"))


COMMANDS = dict(all_commands())
EXAMPLES = [example for command in COMMANDS.values() for example in command.examples]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_two_examples_of_itself(name: str) -> None:
    examples = [example for example in COMMANDS[name].examples if example.startswith(name)]
    assert len(examples) >= 2, name


@pytest.mark.parametrize("example", sorted(set(EXAMPLES)))
def test_an_example_is_accepted_as_it_is_typed(example: str) -> None:
    """Parsed down to the last subcommand; nothing is carried out."""
    words = shlex.split(example.partition(" | ")[0])[1:]
    command: click.Command = commands
    context = commands.make_context("routebook", words)
    while isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
        name, found, arguments = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, found.make_context(name, arguments, parent=context)
    assert not isinstance(command, click.Group) or command is commands


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["stauts"], "'status'"),
        (["broker"], "'brokers'"),
        (["kv", "gett"], "'get'"),
        (["settings", "rest"], "'reset'"),
        (["topics", "--clutser", "x"], "--cluster"),
        (["token", "create", "x", "--role", "raed"], "read"),
    ],
)
def test_a_typing_error_gets_the_nearest_name(
    words: list[str], nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert nearest in capsys.readouterr().err


def test_the_help_of_serve_is_short_and_help_all_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--help"]) == 0
    short = capsys.readouterr().out
    assert "--redis-url" in short
    assert "--scan-not-active-broker-interval-ms" not in short
    assert len(short.splitlines()) < 80
    assert run(["serve", "--help-all"]) == 0
    whole = capsys.readouterr().out
    assert "a failed network" in " ".join(whole.split())
    for heading in ("Ports and process:", "Store:", "History:", "Expiry and lost connections:", "TLS:", "Limits:"):
        assert f"\n{heading}\n" in whole
    assert whole.index("Limits:") < whole.index("--max-groups")
