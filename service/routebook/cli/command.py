"""What all commands share: classes with sections and suggestions in their help, and the common options for the service
and for the output. Common options are accepted before and after the subcommand.

Only click is imported here: completion and `--help` must not wait for the HTTP client.
"""

import difflib
import importlib
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

URL_VARIABLE: Final = "ROUTEBOOK_URL"
TOKEN_VARIABLES: Final = ("ROUTEBOOK_TOKEN", "ROUTEBOOK_ADMIN_TOKEN")
"""The first one that is set counts. The second is for the machine of the service, where it is a setting."""
CACERT_VARIABLE: Final = "ROUTEBOOK_CACERT"
CERT_VARIABLE: Final = "ROUTEBOOK_CERT"
KEY_VARIABLE: Final = "ROUTEBOOK_KEY"
CONTEXT_VARIABLE: Final = "ROUTEBOOK_CONTEXT"
DEFAULT_URL: Final = "http://127.0.0.1:8080"

HELP_ALL: Final = "routebook.help-all"
"""Key in click's `meta`: the help shows the flags of all settings."""
_GIVEN: Final = "routebook.given"
"""Key in click's `meta`, which the contexts of one command line share: option name -> value."""
FORMS: Final = ("table", "wide", "json", "yaml", "name", "jsonpath")

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def given_options(context: click.Context | None = None) -> dict[str, Any]:
    """The shared options of this command line, wherever they stand on it. The last one counts."""
    context = context or click.get_current_context()
    options: dict[str, Any] = context.meta.setdefault(_GIVEN, {})
    return options


class SectionOption(click.Option):
    """An option that the help shows under its own heading."""

    def __init__(self, *args: Any, section: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class SharedOption(SectionOption):
    """An option whose value is kept in `given_options`, so that each level of the command line accepts it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, default=None, expose_value=False, callback=_keep, **kwargs)


def _keep(context: click.Context, option: click.Parameter, value: object) -> None:
    if value is not None and option.name:
        given_options(context)[option.name] = value


_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "": 1.0}
_DURATION: Final = re.compile(r"(?P<number>\d{1,9}(?:\.\d{1,6})?)(?P<unit>ms|s|m|h|d|)")


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """A duration such as `30s`, `500ms`, `2m`, `1h` or `7d`, converted to seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        found = _DURATION.fullmatch(str(value))
        if not found:
            self.fail(
                f"{value!r} is not a duration. Examples: 30s, 500ms, 2m, 1h, 7d; a number alone is seconds.", param, ctx
            )
        return float(found["number"]) * _UNITS_S[found["unit"]]

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002 click's signature
        return "TIME"


DURATION: Final = Duration()


class _FormType(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    name = "form"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        form, equals, path = str(value).partition("=")
        if form not in FORMS or bool(equals) != (form == "jsonpath"):
            self.fail(f"{value!r} is not a form. Allowed: {', '.join(FORMS[:-1])}, jsonpath=PATH.", param, ctx)
        if form == "jsonpath" and not path:
            self.fail("jsonpath needs a path, such as jsonpath='{.workers[*].worker}'.", param, ctx)
        return str(value)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 click's signature
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        forms = [*FORMS[:-1], "jsonpath="]
        return [CompletionItem(form) for form in forms if form.startswith(incomplete)]


def complete(what: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes an argument with names that exist, such as topics. `completion.py` lists what there is."""

    def complete_name(context: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        del param
        # By name: that module asks the service, and imports the modules that import this one.
        names: list[str] = importlib.import_module("routebook.cli.completion").names_of(what, context, incomplete)
        return names

    return complete_name


def _shared(section: str, *names: str, **attributes: Any) -> Callable[[AnyFunction], AnyFunction]:
    return click.option(*names, cls=SharedOption, section=section, **attributes)


def tls_options(function: AnyFunction) -> AnyFunction:
    """Adds --cacert, --cert, --key and --insecure."""
    for option in (
        _shared("Connection", "--insecure", is_flag=True, help="Do not verify the certificate of the service."),
        _shared(
            "Connection", "--key", "key_file", metavar="FILE", help=f"Key of the certificate; else {KEY_VARIABLE}."
        ),
        _shared("Connection", "--cert", "cert_file", metavar="FILE", help=f"Client certificate; else {CERT_VARIABLE}."),
        _shared(
            "Connection",
            "--cacert",
            "cacert_file",
            metavar="FILE",
            help=f"Trusted authorities (PEM); else {CACERT_VARIABLE}.",
        ),
    ):
        function = option(function)
    return function


def connection_options(function: AnyFunction) -> AnyFunction:
    """Adds the options that say which service is used, and how; `contexts.chosen_connection` returns the choice."""
    function = _shared(
        "Connection",
        "--timeout",
        "timeout_s",
        type=DURATION,
        help="Timeout of each request, with its retries.  [default: 15s]",
    )(function)
    function = tls_options(function)
    for option in (
        _shared("Connection", "--token", help=f"Bearer token; else {', else '.join(TOKEN_VARIABLES)}, else context."),
        _shared(
            "Connection",
            "--context",
            "context_name",
            metavar="NAME",
            shell_complete=complete("contexts"),
            help=f"Use this context (`routebook context list`); else {CONTEXT_VARIABLE}.",
        ),
        _shared(
            "Connection",
            "--url",
            metavar="URL,...",
            help=f"Addresses of the service; when one fails, the next is used. Else {URL_VARIABLE}, else context, else "
            f"{DEFAULT_URL}.",
        ),
    ):
        function = option(function)
    return function


def output_options(function: AnyFunction) -> AnyFunction:
    """Adds the options that say in which form the output is printed; `forms.chosen_form` returns the choice."""
    for option in (
        _shared("Output", "--no-headers", is_flag=True, help="Omit the header of a table."),
        _shared("Output", "--wide", is_flag=True, help="The same as -o wide."),
        _shared("Output", "--json", is_flag=True, help="The same as -o json."),
        _shared(
            "Output",
            "-o",
            "--output",
            "form",
            type=_FormType(),
            metavar="FORM",
            help=f"{', '.join(FORMS[:-1])} or jsonpath=PATH.  [default: table]",
        ),
    ):
        function = option(function)
    return function


_WHOLE_SENTENCE: Final = 1000
_EXAMPLES: Final = re.compile(r"^\s*\x08\n(\s*routebook [^\n]*(\n|$))+", re.MULTILINE)


class Command(click.Command):
    """A command whose help lists the shared options in sections of their own, after its own options."""

    @property
    def examples(self) -> list[str]:
        """The lines of the help that can be typed. They stand in a block of their own, after `\\b`."""
        return [line.strip() for line in (self.help or "").splitlines() if line.strip().startswith("routebook ")]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        whole, examples = self.help, self.examples
        try:
            self.help = _EXAMPLES.sub("", whole or "").rstrip()
            super().format_help_text(ctx, formatter)
        finally:
            self.help = whole
        if examples:
            with formatter.section("Examples"):
                for example in examples:
                    # Not wrapped: a command must be copied as one line.
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            is_plain_argument = isinstance(param, click.Argument) and not (record and record[1])
            if record is not None and not is_plain_argument:
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        own_sections = [name for name in sections if name not in ("Connection", "Output")]
        for name in (*own_sections, "Output", "Connection"):
            if sections.get(name):
                with formatter.section(name):
                    formatter.write_dl(sections[name])


def _shared_options() -> list[SharedOption]:
    holder = output_options(connection_options(click.Command("shared")))
    return [option for option in reversed(holder.params) if isinstance(option, SharedOption)]


class Group(Command, click.Group):
    """A group that accepts the shared options, passes them on, and suggests the nearest name for an unknown one."""

    command_class = Command
    group_class = type

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """With whole sentences. Click would end each of them at the width of the terminal."""
        found = ((name, self.get_command(ctx, name)) for name in self.visible_commands(ctx))
        rows = [(name, one.get_short_help_str(_WHOLE_SENTENCE)) for name, one in found if one and not one.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        names = {param.name for param in own}
        shared = _shared_options()
        for option in shared:
            # `routebook --help` shows them; the help of a group in between lists its commands only.
            option.hidden = ctx.parent is not None
        return [*own, *(option for option in shared if option.name not in names)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        found = self.get_command(ctx, name)
        if found is None and not ctx.resilient_parsing and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.visible_commands(ctx), n=3, cutoff=0.5)
            hint = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
        if found is not None and not ctx.resilient_parsing and not isinstance(found, Group):
            self._check_given(ctx, name, found)
        return super().resolve_command(ctx, args)

    def visible_commands(self, ctx: click.Context) -> list[str]:
        return self.list_commands(ctx)

    @staticmethod
    def _check_given(ctx: click.Context, name: str, command: click.Command) -> None:
        """An option in front of a command that does not use it would have no effect, silently."""
        accepted = {param.name for param in command.params if isinstance(param, SharedOption)}
        for option in given_options(ctx).keys() - accepted:
            flag = next(one.opts[-1] for one in _shared_options() if one.name == option)
            raise click.UsageError(f"`{name}` has no option {flag}, or takes it only after its name.", ctx)


def command(name: str, **attributes: Any) -> Callable[[Callable[..., Any]], Command]:
    return click.command(name, cls=Command, **attributes)


def command_group(name: str, **attributes: Any) -> Callable[[Callable[..., Any]], Group]:
    return click.group(name, cls=Group, **attributes)
