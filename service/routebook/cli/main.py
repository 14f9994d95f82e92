"""The command line as a whole: which commands there are, and how an error becomes a sentence and an exit code.

Commands are imported when used: `routebook route` does not wait for the HTTP server's modules, and a broken plug-in
breaks only itself.
"""

import importlib
import os
import sys
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points

import click

from routebook import __version__
from routebook.errors import RoutebookError
from routebook.runtime import exits

COMMAND_GROUP = "routebook.commands"
"""Entry points that add commands: how `pipeline` comes without the service importing it."""

_COMMANDS = {
    "up": "up",
    "serve": "serve",
    "route": "route",
    "topics": "topics",
    "brokers": "brokers",
    "clusters": "clusters",
    "watch": "watch",
    "kv": "kv",
    "write-permission": "write_permission",
    "delete-topic": "delete_topic",
    "expiry": "expiry",
    "settings": "settings",
    "status": "status",
    "doctor": "doctor",
    "digest": "digest",
    "compare": "compare",
    "snapshot": "snapshot",
    "simulate": "simulate",
    "completion": "completion",
    "worker-process": "worker_process",
    "body-reader": "body_reader",
}
"""Name -> module of this package, whose `command` it is."""

_MISSING = {"pipeline": "pip install 'routebook[pipeline]'"}
"""Commands of other packages -> how to get them."""


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 click's signature
        known = [*_COMMANDS, *_plug_ins()]
        return known + [name for name in _MISSING if name not in known]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name in _COMMANDS:
            module = importlib.import_module(f"routebook.cli.{_COMMANDS[cmd_name]}")
            command: click.Command = module.command
            return command
        plug_in = _plug_ins().get(cmd_name)
        if plug_in is not None:
            try:
                loaded: click.Command = plug_in.load()
            except ModuleNotFoundError:
                # Its own modules came with ours; what they are built on is an extra.
                if cmd_name not in _MISSING:
                    raise
            else:
                return loaded
        return _missing(cmd_name) if cmd_name in _MISSING else None


def _plug_ins() -> dict[str, EntryPoint]:
    return {one.name: one for one in entry_points(group=COMMAND_GROUP)}


def _missing(name: str) -> click.Command:
    @click.command(
        name,
        short_help=f"Not installed: {_MISSING[name]}.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    )
    def command() -> None:
        raise click.UsageError(f"`routebook {name}` is not installed. Get it with: {_MISSING[name]}")

    return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="routebook")
def commands() -> None:
    """The name service for RocketMQ fleets, scaled out on Redis.

    Exit codes: 0 done, 1 the answer is no, 2 wrong usage, 3 the service cannot be reached, 4 history is missing.
    """


def main(arguments: list[str] | None = None) -> None:
    """Ends the process with the exit code."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    code = _run_command(arguments)
    _flush_output()
    return code


def _run_command(arguments: list[str] | None) -> int:
    try:
        code = commands.main(args=arguments, prog_name="routebook", standalone_mode=False)
        return code if isinstance(code, int) else exits.DONE
    except click.ClickException as error:
        with suppress(BrokenPipeError):
            error.show()
        return exits.WRONG_USAGE
    except (click.Abort, KeyboardInterrupt):
        return 130
    except RoutebookError as error:
        with suppress(BrokenPipeError):
            click.echo(f"Error: {error}", err=True)
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
