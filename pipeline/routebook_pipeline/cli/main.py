"""The list of commands, and how an error becomes a message and an exit code."""

import importlib
import os
import sys
import traceback
from contextlib import suppress
from typing import Any, Final

import click

from routebook_pipeline.cli.options import ARGUMENTS
from routebook_pipeline.errors import PipelineError, WrongUsageError, translate_error

_COMMANDS: Final = {
    "ingest": "ingest",
    "backfill": "backfill",
    "route-at": "route_at",
    "run": "run",
    "report": "report",
    "nightly": "nightly",
    "serve": "serve",
    "export": "export",
    "package": "package",
    "doctor": "doctor",
}
"""Name -> the module in this package that has it as `command`."""

DEBUG_OPTION: Final = "--debug"
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as in a shell: 128 and the number of the signal."""


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"routebook_pipeline.cli.{_COMMANDS[cmd_name]}")
        command: click.Command = module.command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Handles the pipeline's errors, which the service's command line does not know."""
        try:
            return super().invoke(ctx)
        except PipelineError as error:
            _print_error(error)
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            # The reader (head, less) closed the pipe early, which is no error.
            ctx.exit(0)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            known = translate_error(error)
            if known is None:
                raise
            _print_error(known, error)
            ctx.exit(known.exit_code)


def run(program: str, arguments: list[str] | None = None) -> int:
    """Runs the commands as a program of their own; returns the exit code that they have as `routebook pipeline`, too.
    Click by itself would exit with 0 whatever a command returns, and after Ctrl-C with 1, which means "no" here.
    """
    code = run_command(program, arguments)
    _flush_output()
    return code


def run_command(program: str, arguments: list[str] | None) -> int:
    """Leaves the outputs open and unflushed."""
    try:
        code = pipeline.main(args=arguments, prog_name=program, standalone_mode=False)
    except click.ClickException as error:
        with suppress(BrokenPipeError):
            error.show()
        return WrongUsageError.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # The reader (head, less) closed the pipe early, which is no error. Click exits with code 1 then, which means
        # "no" here.
        return 0
    return code if isinstance(code, int) else 0


def _flush_output() -> None:
    """Without this, the interpreter flushes at exit, and the exit code becomes 120 if the pipe is closed. The service's
    command line does the same, but this package also runs on its own.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except BrokenPipeError:
            # The interpreter flushes the rest of the buffer once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _print_error(error: PipelineError, origin: BaseException | None = None) -> None:
    if DEBUG_OPTION in sys.argv:
        traceback.print_exception(origin or error)
    with suppress(BrokenPipeError):
        click.echo(f"Error: {error}", err=True)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """Answer questions about the history of the fleet, with Spark.

    A lake (tables in a folder or an object store) keeps every change of the name service. `ingest` fills it, the other
    commands read it.

    Exit codes: 0 success, 1 the answer is no (no route, objective missed, history not ok or not complete), 2 wrong
    usage, 3 the store, the lake or Java cannot be reached, 4 the history is missing in part or is another one, 130
    ended by Ctrl-C.
    """
