"""The HTTP client of the commands: address, token, errors, paging."""

import json
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
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
_PAGE = 1000
_TIMEOUT_SECONDS = 15.0
"""Longer than the service's own deadlines, so that its error arrives."""

P = ParamSpec("P")
R = TypeVar("R")


class Service:
    """A synchronous client of one service."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            # The proxies of the environment lead out of the network; the service is inside it.
            self.http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=_TIMEOUT_SECONDS,
                trust_env=False,
                verify=trusted_authorities(self.url),
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
            raise ServiceUnreachableError(
                f"No answer from {self.url}: {str(error) or type(error).__name__}.",
                advice=f"Start one with `routebook up`, or name another with --url or {URL_VARIABLE}.",
            ) from error


def trusted_authorities(url: str) -> ssl.SSLContext | bool:
    """The authorities of this machine and of SSL_CERT_FILE and SSL_CERT_DIR, as OpenSSL's own tools use them.

    A fleet's certificate authority is rarely one of the public ones, which are all that httpx trusts by itself.
    """
    return ssl.create_default_context() if url.lower().startswith("https:") else False


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


def with_service(command: Callable[Concatenate[Service, P], R]) -> Callable[P, R]:
    """Passes a client to a command and adds the options --url and --token."""

    @click.option("--url", default=None, help=f"Address of the service; else {URL_VARIABLE}, else {DEFAULT_URL}.")
    @click.option("--token", default=None, help=f"Bearer token; else {', else '.join(TOKEN_VARIABLES)}.")
    @wraps(command)
    def with_client(*args: Any, url: str | None, token: str | None, **kwargs: Any) -> R:
        chosen_url = url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
        chosen_token = token if token is not None else token_of_environment()
        with Service(chosen_url, chosen_token) as service:
            return command(service, *args, **kwargs)

    return with_client  # type: ignore[return-value]  # two keyword arguments more, given by click


def as_json(command: Callable[P, R]) -> Callable[P, R]:
    return click.option("--json", "json_", is_flag=True, help="Print JSON, for programs.")(command)


def print_json(value: object) -> None:
    click.echo(json_text(value, indent=2))
