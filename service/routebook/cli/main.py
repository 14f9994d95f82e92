"""The command line: the list of commands, and how an error becomes a sentence and an exit code.

A command's module is imported when the command is used: `routebook route` does not wait for the HTTP server's modules,
and a broken plug-in breaks only itself.
"""

import importlib
import os
import shutil
import sys
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points

import click
from click.shell_completion import get_completion_class

from routebook import __version__
from routebook.cli.command import Group, command
from routebook.errors import RoutebookError
from routebook.runtime import exits

COMMAND_GROUP = "routebook.commands"
"""Entry points that add commands, such as `pipeline`, which the service does not import."""

_COMMANDS = {
    "up": "serve.up_command",
    "serve": "serve.serve_command",
    "route": "fleet.route_command",
    "topics": "fleet.topics_command",
    "brokers": "fleet.brokers_command",
    "clusters": "fleet.clusters_command",
    "watch": "changes.watch_command",
    "changes": "changes.changes_command",
    "describe": "fleet.describe_command",
    "kv": "administration.kv_command",
    "write-permission": "administration.write_permission_command",
    "delete-topic": "administration.delete_topic_command",
    "register-topic": "administration.register_topic_command",
    "remove-broker": "administration.remove_broker_command",
    "readers": "administration.readers_command",
    "expiry": "operation.expiry_command",
    "settings": "operation.settings_command",
    "token": "token.token_command",
    "context": "contexts.context_command",
    "status": "status.status_command",
    "top": "status.top_command",
    "doctor": "status.doctor_command",
    "certs": "certs.certs_command",
    "digest": "operation.digest_command",
    "compare": "compare.compare_command",
    "snapshot": "snapshot.snapshot_command",
    "simulate": "simulate.simulate_command",
    "completion": "main.completion_command",
    "man-pages": "man_pages.man_pages_command",
    "worker-process": "serve.worker_process_command",
}
"""Name of a command -> its module in this package and its name there."""

_MISSING = {"pipeline": "pip install 'routebook[pipeline]'"}
"""Commands of other packages -> how to get them."""


class Commands(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 click's signature
        known = [*_COMMANDS, *_plug_ins()]
        return known + [name for name in _MISSING if name not in known]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name in _COMMANDS:
            module, _, attribute = _COMMANDS[cmd_name].partition(".")
            found: click.Command = getattr(importlib.import_module(f"routebook.cli.{module}"), attribute)
            return found
        plug_in = _plug_ins().get(cmd_name)
        if plug_in is not None:
            try:
                loaded: click.Command = plug_in.load()
            except ModuleNotFoundError:
                # The plug-in is installed with us, but the libraries that it needs are an extra.
                if cmd_name not in _MISSING:
                    raise
            else:
                return loaded
        return _missing(cmd_name) if cmd_name in _MISSING else None


def _plug_ins() -> dict[str, EntryPoint]:
    return {one.name: one for one in entry_points(group=COMMAND_GROUP)}


def _missing(name: str) -> click.Command:
    @command(
        name,
        short_help=f"Not installed: {_MISSING[name]}.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    )
    def missing_command() -> None:
        raise click.UsageError(f"`routebook {name}` is not installed. Get it with: {_MISSING[name]}")

    return missing_command


@click.group("routebook", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="routebook")
def commands() -> None:
    """The name service for RocketMQ fleets, scaled out on Redis.

    Exit codes: 0 done, 1 the answer is no, 2 wrong usage, 3 the service cannot be reached, 4 history is missing.

    \b
    routebook up
    routebook status --url http://rb-1:8080,http://rb-2:8080
    """


_SET_UP = {
    "bash": 'eval "$(routebook completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(routebook completion zsh)"  # in ~/.zshrc',
    "fish": "routebook completion fish | source  # in ~/.config/fish/config.fish",
}


@command("completion")
@click.argument("shell", type=click.Choice(sorted(_SET_UP)))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete commands, options, and the names of topics, brokers, clusters and
    settings, which it asks the service for.

    In bash and zsh, use it as `eval "$(routebook completion bash)"`.

    \b
    routebook completion bash
    routebook completion fish | source
    """
    completion = get_completion_class(shell)
    if completion is None:
        raise click.UsageError(f"Completion for {shell} is not supported.")
    root = context.find_root().command
    # Not `source()`: for bash, it runs the installed shell to learn its version, and bash may be missing.
    script = completion(root, {}, "routebook", "_ROUTEBOOK_COMPLETE")
    click.echo(f"# {_SET_UP[shell]}")
    click.echo(script.source_template % script.source_vars())


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and ends the process with its exit code."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    code = _run_command(arguments)
    _flush_output()
    return code


def _run_command(arguments: list[str] | None) -> int:
    try:
        # Lines of more than 120 letters are hard to read, on any screen.
        width = min(shutil.get_terminal_size().columns, 120)
        code = commands.main(args=arguments, prog_name="routebook", standalone_mode=False, max_content_width=width)
        return code if isinstance(code, int) else exits.DONE
    except click.ClickException as error:
        with suppress(BrokenPipeError):
            error.show()
        return exits.WRONG_USAGE
    except (click.Abort, KeyboardInterrupt):
        return 130
    except RoutebookError as error:
        with suppress(BrokenPipeError):
            # Imported late: most commands end without an error, and this module names no other one of the package.
            from routebook.cli.output import printable  # noqa: PLC0415

            click.echo(f"Error: {printable(str(error))}", err=True)
        return exits.exit_code_of(error)
    except (BrokenPipeError, SystemExit):
        # The reader (head, less) closed the pipe early, which is no error. Click exits with code 1 then, which means
        # "no" here.
        return exits.DONE


def _flush_output() -> None:
    """Without this the interpreter flushes when it exits, and turns the exit code into 120 if the reader has closed the
    pipe by then.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except BrokenPipeError:
            # What is still buffered has to go somewhere when the interpreter flushes once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
