"""The HTTP client of the commands: address, token, errors, paging."""

import json
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import quote

import click
import httpx

from routebook.cli.output import json_text
from routebook.errors import RoutebookError, SettingsError
from routebook.runtime.exits import AnswerIsNoError, HistoryMissingError, ServiceUnreachableError

DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE = "ROUTEBOOK_URL"
TOKEN_VARIABLES = ("ROUTEBOOK_TOKEN", "ROUTEBOOK_ADMIN_TOKEN")
"""The first one that is set counts. The second is for the machine of the service, where it is a setting."""
CACERT_VARIABLE = "ROUTEBOOK_CACERT"
CERT_VARIABLE = "ROUTEBOOK_CERT"
KEY_VARIABLE = "ROUTEBOOK_KEY"
_PAGE = 1000
_TIMEOUT_SECONDS = 15.0
"""Longer than the service's own deadlines, so that its error arrives."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM format for a service that is reached over https. An empty name means that there is no such file."""

    cacert: str = ""
    cert: str = ""
    key: str = ""

    @classmethod
    def chosen(cls, cacert: str | None, cert: str | None, key: str | None) -> Self:
        """The values of the options, and those of the environment for options that are not given.

        A certificate and its key come from the same place: the key of another certificate would not fit.
        """
        if cert is None and key is None:
            cert, key = os.environ.get(CERT_VARIABLE), os.environ.get(KEY_VARIABLE)
        return cls(os.environ.get(CACERT_VARIABLE, "") if cacert is None else cacert, cert or "", key or "")

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
        if not url.lower().startswith("https:"):
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
            f"{name} cannot be read: {error.strerror}.", advice=f"It is named by {option} or {variable}."
        ) from error


NO_TLS_FILES = TlsFiles()


class Service:
    """A synchronous client of one service."""

    def __init__(self, url: str, token: str, tls_files: TlsFiles = NO_TLS_FILES) -> None:
        self.url = url.rstrip("/")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        verify = tls_files.context(self.url)
        try:
            # The proxies of the environment lead out of the network; the service is inside it.
            self.http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=_TIMEOUT_SECONDS,
                trust_env=False,
                verify=verify,
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise SettingsError(
                f"{url!r} is not the address of a service.", advice=f"Example: {DEFAULT_URL}."
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()

    def get(self, path: str, **params: object) -> Any:
        return self.request("GET", path, params=params)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        body: object = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> Any:
        """Returns the answer's JSON. Raises an error that decides the exit code."""
        given = {key: value for key, value in (params or {}).items() if value is not None}
        with self.connection_errors():
            answer = self.http.request(method, path, params=given, json=body, timeout=timeout_seconds)
        if answer.is_success:
            return answer.json() if answer.content else {}
        raise error_of(answer)

    def pages(self, path: str, key: str, **params: object) -> Iterator[Any]:
        """Yields all entries of a list, page by page."""
        cursor = None
        while True:
            page = self.get(path, limit=_PAGE, cursor=cursor, **params)
            yield from page[key]
            cursor = page.get("next_cursor")
            if not cursor:
                return

    @contextmanager
    def connection_errors(self) -> Iterator[None]:
        """Turns the errors of the HTTP client into ours."""
        try:
            yield
        except httpx.UnsupportedProtocol as error:
            raise SettingsError(
                f"{self.url!r} is not the address of a service.", advice=f"Example: {DEFAULT_URL}."
            ) from error
        except httpx.TransportError as error:
            advice = f"Start one with `routebook up`, or name another with --url or {URL_VARIABLE}."
            if self.url.lower().startswith("https:") and _is_about_certificates(error):
                advice = "Name the service's authority with --cacert, and a client certificate with --cert and --key."
            raise ServiceUnreachableError(
                f"No answer from {self.url}: {str(error) or type(error).__name__}.", advice=advice
            ) from error


def _is_about_certificates(error: httpx.TransportError) -> bool:
    """Whether a https service may have refused the certificate. It does that after the handshake, so what arrives here
    is an error of TLS or the end of the connection.
    """
    return "[SSL" in str(error) or isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError)


def error_of(answer: httpx.Response) -> RoutebookError:
    """Converts problem+json: 404 and 409 mean "the answer is no", 400, 403 and 422 wrong usage, 5xx unreachable."""
    problem = _problem(answer)
    message = str(problem.get("detail") or problem.get("title") or f"HTTP status {answer.status_code}.")
    advice = str(problem.get("advice") or "")
    status = answer.status_code
    if status == 404 and problem.get("type", "no-such-path") == "no-such-path":
        return ServiceUnreachableError(
            f"The server at {answer.url} is not a Routebook, or one of another version.",
            advice=f"Name the HTTP port of a Routebook with --url or {URL_VARIABLE}.",
        )
    if status == 410:
        return HistoryMissingError(message, advice=advice)
    if status >= 500 or status == 429:
        return ServiceUnreachableError(message, advice=advice)
    if status in (400, 401, 403, 405, 413, 415, 421, 422):
        return SettingsError(message, advice=advice)
    return AnswerIsNoError(message, advice=advice)


def _problem(answer: httpx.Response) -> dict[str, Any]:
    try:
        answer.read()
        found = answer.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def path_part(text: str) -> str:
    """Quotes a name for a path: topics have names such as `%RETRY%group`."""
    return quote(text, safe="")


def token_of_environment() -> str:
    return next(filter(None, map(os.environ.get, TOKEN_VARIABLES)), "") or ""


def with_tls_files(command: Callable[P, R]) -> Callable[P, R]:
    """Adds the options --cacert, --cert and --key, and passes the files as `tls_files`."""

    @click.option("--cacert", "cacert_file", metavar="FILE", help=f"Trusted authorities; else {CACERT_VARIABLE}.")
    @click.option("--cert", "cert_file", metavar="FILE", help=f"Client certificate; else {CERT_VARIABLE}.")
    @click.option("--key", "key_file", metavar="FILE", help=f"Key of the certificate; else {KEY_VARIABLE}.")
    @wraps(command)
    def with_files(
        *args: Any, cacert_file: str | None, cert_file: str | None, key_file: str | None, **kwargs: Any
    ) -> R:
        files = TlsFiles.chosen(cacert_file, cert_file, key_file)
        return command(*args, tls_files=files, **kwargs)  # type: ignore[arg-type]

    return with_files  # type: ignore[return-value]  # three keyword arguments more, given by click


def with_service(command: Callable[Concatenate[Service, P], R]) -> Callable[P, R]:
    """Passes a client to a command and adds the options --url, --token, --cacert, --cert and --key."""

    @click.option("--url", default=None, help=f"Address of the service; else {URL_VARIABLE}, else {DEFAULT_URL}.")
    @click.option("--token", default=None, help=f"Bearer token; else {', else '.join(TOKEN_VARIABLES)}.")
    @with_tls_files
    @wraps(command)
    def with_client(*args: Any, url: str | None, token: str | None, tls_files: TlsFiles, **kwargs: Any) -> R:
        chosen_url = url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
        chosen_token = token if token is not None else token_of_environment()
        with Service(chosen_url, chosen_token, tls_files) as service:
            return command(service, *args, **kwargs)

    return with_client  # type: ignore[return-value]  # keyword arguments more, given by click


def as_json(command: Callable[P, R]) -> Callable[P, R]:
    return click.option("--json", "json_", is_flag=True, help="Print JSON, for programs.")(command)


def print_json(value: object) -> None:
    click.echo(json_text(value, indent=2))
