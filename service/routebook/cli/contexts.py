"""`routebook context list|use|set|delete`, and which service a command line uses: its options, variables and context.

A context is a named set of connection options in a file: addresses, token, certificates, timeout.
"""

import os
import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self

import click

from routebook.cli.command import (
    CACERT_VARIABLE,
    CERT_VARIABLE,
    CONTEXT_VARIABLE,
    DEFAULT_URL,
    KEY_VARIABLE,
    TOKEN_VARIABLES,
    URL_VARIABLE,
    command_group,
    complete,
    connection_options,
    given_options,
)
from routebook.cli.forms import Form, with_names
from routebook.cli.output import json_text
from routebook.errors import SettingsError
from routebook.runtime.exits import AnswerIsNoError

FILE_VARIABLE: Final = "ROUTEBOOK_CONTEXTS"
DEFAULT_TIMEOUT_S: Final = 15.0
"""Longer than the service's own deadlines, so that its error arrives."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM format for a service that is reached over https. An empty name means that there is no such file."""

    cacert: str = ""
    cert: str = ""
    key: str = ""
    insecure: bool = False

    def context(self, url: str) -> ssl.SSLContext | bool:
        """What httpx needs to reach `url`.

        Without --cacert, these are the authorities of this machine and of SSL_CERT_FILE and SSL_CERT_DIR, as OpenSSL's
        own tools use them. A fleet's authority is rarely one of the public ones, which are all that httpx trusts by
        itself.
        """
        if self.key and not self.cert:
            raise SettingsError(
                f"There is a client key ({self.key}) without a certificate.",
                advice=f"Name the certificate with --cert or {CERT_VARIABLE}.",
            )
        if "https:" not in url.lower():
            return False
        _check_readable("--cacert", CACERT_VARIABLE, self.cacert)
        _check_readable("--cert", CERT_VARIABLE, self.cert)
        _check_readable("--key", KEY_VARIABLE, self.key)
        try:
            context = ssl.create_default_context(cafile=self.cacert or None)
        except (ssl.SSLError, OSError) as error:
            raise SettingsError(
                f"{self.cacert or 'The trust file of this machine'} holds no certificates in PEM format.",
                advice=f"Name the authority's certificate with --cacert or {CACERT_VARIABLE}.",
            ) from error
        if self.cert:
            self._load_pair(context)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _load_pair(self, context: ssl.SSLContext) -> None:
        try:
            # Without a password, OpenSSL would ask for one at the terminal.
            context.load_cert_chain(self.cert, self.key or None, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            files = f"{self.cert} and {self.key}" if self.key else self.cert
            raise SettingsError(
                f"{files}: no client certificate with its key in PEM format, or the key is encrypted.",
                advice=f"Name both with --cert and --key, or {CERT_VARIABLE} and {KEY_VARIABLE}. The key may also be "
                "in the file of the certificate.",
            ) from error


def _check_readable(option: str, variable: str, name: str) -> None:
    if not name:
        return
    try:
        with Path(name).open("rb"):
            pass
    except OSError as error:
        raise SettingsError(
            f"{name} cannot be read: {error.strerror}.", advice=f"It is named by {option}, {variable} or the context."
        ) from error


NO_TLS_FILES: Final = TlsFiles()


@dataclass(frozen=True, slots=True)
class Connection:
    """Which service a command uses, and how."""

    urls: tuple[str, ...] = (DEFAULT_URL,)
    token: str = ""
    token_source: str = ""
    """Where the token comes from, for the message about a wrong one."""
    tls_files: TlsFiles = NO_TLS_FILES
    timeout_s: float = DEFAULT_TIMEOUT_S


# -- the file


@dataclass(frozen=True, slots=True)
class NamedContext:
    """The connection options of one context. An empty one is not set."""

    url: str = ""
    token: str = ""
    cacert: str = ""
    cert: str = ""
    key: str = ""
    insecure: bool = False
    timeout_s: float = 0.0

    @classmethod
    def checked(cls, name: str, values: Mapping[str, Any], file: Path) -> Self:
        kinds = {one.name: type(one.default) for one in fields(cls)}
        for key, value in values.items():
            kind = kinds.get(key)
            is_number = kind is float and type(value) in (int, float)
            if kind is None or not (type(value) is kind or is_number):
                raise SettingsError(
                    f"{file}: the context {name!r} has {key} = {value!r}.", advice=f"Allowed: {', '.join(kinds)}."
                )
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Contexts:
    file: Path
    current: str = ""
    contexts: Mapping[str, NamedContext] = field(default_factory=dict)

    def named(self, name: str) -> NamedContext:
        if name not in self.contexts:
            known = ", ".join(self.contexts) or "none"
            raise SettingsError(
                f"There is no context {name!r}; {self.file} has: {known}.",
                advice=f"Make it with `routebook context set {name} --url URL`.",
            )
        return self.contexts[name]

    def write(self) -> None:
        """Replaces the file in one step. Only its owner can read it, since it may contain tokens."""
        lines = [f"current = {json_text(self.current)}"] if self.current else []
        for name, context in self.contexts.items():
            lines += ["", f"[contexts.{json_text(name)}]"]
            lines += [f"{key} = {json_text(value)}" for key, value in asdict(context).items() if value]
        partial = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as output:
                output.write("\n".join(lines).lstrip() + "\n")
            partial.replace(self.file)
        except OSError as error:
            raise SettingsError(
                f"{self.file} cannot be written: {error.strerror}.", advice=f"Name another file with {FILE_VARIABLE}."
            ) from error


def contexts_file() -> Path:
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "routebook" / "contexts.toml"


def read_contexts() -> Contexts:
    file = contexts_file()
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Contexts(file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(
            f"{file} cannot be read: {error}.", advice="Correct it, or remove it and make the contexts again."
        ) from error
    tables = document.get("contexts", {})
    current = document.get("current", "")
    if document.keys() - {"current", "contexts"} or not isinstance(tables, dict) or not isinstance(current, str):
        raise SettingsError(f"{file} is not a file of contexts.", advice="Allowed: current, and [contexts.NAME].")
    contexts = {
        name: NamedContext.checked(name, values if isinstance(values, dict) else {"": values}, file)
        for name, values in tables.items()
    }
    return Contexts(file, current, contexts)


# -- the choice


def chosen_connection() -> Connection:
    """What this command line uses. Strongest first: an option, a context named by --context, a variable, the context
    in use, the default.

    The context in use counts only as a whole: when --url or a variable names another service, that service must not
    receive the context's token.
    """
    given = given_options()
    explicit = given.get("context_name") or os.environ.get(CONTEXT_VARIABLE)
    other_url = given.get("url") or os.environ.get(URL_VARIABLE)
    context, name = NamedContext(), ""
    if explicit or not other_url:
        contexts = read_contexts()
        name = explicit or contexts.current
        context = contexts.named(name) if name else context
    weaker = NamedContext() if explicit else context
    stronger = context if explicit else NamedContext()
    url = given.get("url") or stronger.url or os.environ.get(URL_VARIABLE) or weaker.url or DEFAULT_URL
    token, source = _token(given, stronger, weaker, name)
    return Connection(
        _urls(url),
        token,
        source,
        _tls_files(given, stronger, weaker),
        given.get("timeout_s") or context.timeout_s or DEFAULT_TIMEOUT_S,
    )


def _urls(text: str) -> tuple[str, ...]:
    urls = tuple(dict.fromkeys(one.strip().rstrip("/") for one in text.split(",") if one.strip()))
    for url in urls or (text,):
        if not url.lower().startswith(("http://", "https://")) or not url.partition("://")[2]:
            raise SettingsError(
                f"{url!r} is not the address of a service.",
                advice=f"Example: {DEFAULT_URL}; several are separated by commas.",
            )
    return urls


def _token(given: Mapping[str, Any], stronger: NamedContext, weaker: NamedContext, name: str) -> tuple[str, str]:
    if "token" in given:
        return given["token"], "--token"
    if stronger.token:
        return stronger.token, f"the context {name}"
    for variable in TOKEN_VARIABLES:
        if os.environ.get(variable):
            return os.environ[variable], f"the variable {variable}"
    return (weaker.token, f"the context {name}") if weaker.token else ("", "")


def _tls_files(given: Mapping[str, Any], stronger: NamedContext, weaker: NamedContext) -> TlsFiles:
    """A certificate and its key come from the same place: the key of another certificate would not fit."""
    pairs = (
        (given.get("cert_file", ""), given.get("key_file", "")),
        (stronger.cert, stronger.key),
        (os.environ.get(CERT_VARIABLE, ""), os.environ.get(KEY_VARIABLE, "")),
        (weaker.cert, weaker.key),
    )
    cert, key = next((pair for pair in pairs if any(pair)), ("", ""))
    cacert = given.get("cacert_file", stronger.cacert or os.environ.get(CACERT_VARIABLE, "") or weaker.cacert)
    return TlsFiles(cacert, cert, key, bool(given.get("insecure") or stronger.insecure or weaker.insecure))


# -- the commands


@command_group("context")
def context_command() -> None:
    """Named services, with their addresses, tokens and certificates.

    They are kept in ~/.config/routebook/contexts.toml, or in the file that ROUTEBOOK_CONTEXTS names.

    \b
    routebook context set prod --url https://rb-1:8080,https://rb-2:8080 --token TOKEN --cacert ca.pem
    routebook context use prod
    """


@context_command.command("list")
@with_names
def list_contexts(*, form: Form) -> None:
    """List all contexts. An asterisk marks the one in use; tokens are not shown.

    \b
    routebook context list
    routebook context list -o name
    """
    found = read_contexts()
    documents = [
        {"name": name, "current": name == found.current} | asdict(one) | {"token": bool(one.token)}
        for name, one in found.contexts.items()
    ]
    if not form.is_table:
        form.print_data(documents, found.contexts)
        return
    columns = ("name", "url", "token", "cacert", "cert", "insecure")
    form.print_table(
        ("", *columns),
        [
            (
                "*" if one["current"] else " ",
                *(one[key] for key in ("name", "url", "token", "cacert", "cert", "insecure")),
            )
            for one in documents
        ],
    )


@context_command.command("use")
@click.argument("name", required=False, shell_complete=complete("contexts"))
@click.option("--none", "is_none", is_flag=True, help="Use no context.")
def use_context(name: str | None, is_none: bool) -> None:
    """Use a context for all commands from now on that do not name another service.

    \b
    routebook context use prod
    routebook context use --none
    """
    if bool(name) == is_none:
        raise click.UsageError("Name a context, or give --none.")
    found = read_contexts()
    if name:
        context = found.named(name)
        Contexts(found.file, name, found.contexts).write()
        click.echo(f"Commands now use the context {name}: {context.url or DEFAULT_URL}.")
    else:
        Contexts(found.file, "", found.contexts).write()
        click.echo(f"Commands now use {DEFAULT_URL}.")


@context_command.command("set")
@click.argument("name", shell_complete=complete("contexts"))
@connection_options
def set_context(name: str) -> None:
    """Make a context, or change the given options of one. An empty value removes an option.

    \b
    routebook context set local --url http://127.0.0.1:8080
    routebook context set prod --token TOKEN --timeout 5s
    """
    given = given_options()
    names = {"url": "url", "token": "token", "timeout_s": "timeout_s", "insecure": "insecure"}
    values = {names[option]: value for option, value in given.items() if option in names}
    for option in ("cacert_file", "cert_file", "key_file"):
        if option in given:
            values[option.removesuffix("_file")] = str(Path(given[option]).absolute()) if given[option] else ""
    if not values:
        raise click.UsageError("Nothing to set. Example: routebook context set prod --url https://rb-1:8080")
    if values.get("url"):
        values["url"] = ",".join(_urls(values["url"]))
    found = read_contexts()
    before = asdict(found.contexts[name]) if name in found.contexts else {}
    changed = NamedContext(**(before | values))
    Contexts(found.file, found.current, {**found.contexts, name: changed}).write()
    hint = "" if found.current == name else f" Use it with `routebook context use {name}`."
    click.echo(f"Wrote the context {name} to {found.file}.{hint}")


@context_command.command("delete")
@click.argument("name", shell_complete=complete("contexts"))
def delete_context(name: str) -> None:
    """Delete a context.

    \b
    routebook context delete old
    routebook context delete staging-2
    """
    found = read_contexts()
    if name not in found.contexts:
        raise AnswerIsNoError(f"There is no context {name!r}.", advice="`routebook context list` lists all contexts.")
    left = {other: one for other, one in found.contexts.items() if other != name}
    Contexts(found.file, "" if found.current == name else found.current, left).write()
    click.echo(f"Deleted the context {name}.")
