"""The HTTP client of the commands: failover between addresses, retries of reads, token, errors, paging."""

import difflib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar
from urllib.parse import quote

import httpx

from routebook.cli.command import (
    CACERT_VARIABLE,
    CERT_VARIABLE,
    DEFAULT_URL,
    KEY_VARIABLE,
    TOKEN_VARIABLES,
    URL_VARIABLE,
    connection_options,
    tls_options,
)
from routebook.cli.contexts import (
    DEFAULT_TIMEOUT_S,
    NO_TLS_FILES,
    Connection,
    TlsFiles,
    chosen_connection,
)
from routebook.cli.forms import as_json, print_json, staleness
from routebook.errors import RoutebookError, SettingsError
from routebook.runtime.exits import AnswerIsNoError, HistoryMissingError, ServiceUnreachableError

__all__ = [
    "CACERT_VARIABLE",
    "CERT_VARIABLE",
    "DEFAULT_URL",
    "KEY_VARIABLE",
    "TOKEN_VARIABLES",
    "URL_VARIABLE",
    "Connection",
    "Service",
    "TlsFiles",
    "as_json",
    "error_of",
    "path_part",
    "print_json",
    "with_service",
    "with_tls_files",
]

_PAGE: Final = 1000
_RETRY_PAUSES_S: Final = (0.2, 0.6)
"""Pauses before a read is repeated at all addresses. A worker that restarts is back after about a second."""
_RETRIED: Final = frozenset({502, 503, 504})
_CONNECT_S: Final = 3.0
"""With several addresses, how long one may take to accept a connection before the next one is tried."""

_LISTS: Final = {
    "topic": ("/v1/topics", "topics", "topic", "routebook topics"),
    "broker": ("/v1/brokers", "brokers", "name", "routebook brokers"),
    "cluster": ("/v1/clusters", "clusters", "name", "routebook clusters"),
    "reader": ("/v1/readers", "readers", "reader", "routebook readers list"),
    "identity": ("/v1/identities", "identities", "name", "routebook token list"),
    "key-value-namespace": ("/v1/kv", "namespaces", "namespace", "routebook kv namespaces"),
}
"""Kind of a thing -> its list over HTTP, the names of its entries there, and the command that prints it."""
_MOST_COMPARED: Final = 10_000
_NAMES_TIMEOUT_S: Final = 1.0
"""A suggestion is not worth a longer wait."""

P = ParamSpec("P")
R = TypeVar("R")


class FailoverTransport(httpx.BaseTransport):
    """Sends each request to the address that answered last, and to the next one when that one cannot be used.

    A write is sent a second time only when it cannot have been received: the connection was not established.
    """

    def __init__(self, urls: tuple[str, ...], inner: httpx.BaseTransport) -> None:
        self._bases = [httpx.URL(url) for url in urls]
        self._inner = inner
        self.current = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        is_read = request.method in ("GET", "HEAD")
        is_stream = "text/event-stream" in request.headers.get("accept", "")
        timeouts = dict(request.extensions.get("timeout", {}))
        path = request.url.raw_path
        for left in range(len(self._bases) - 1, -1, -1):
            self._address(request, path)
            if left:
                request.extensions["timeout"] = _share(timeouts, left + 1, reads=is_read and not is_stream)
            else:
                request.extensions["timeout"] = timeouts
            try:
                answer = self._inner.handle_request(request)
            except httpx.TransportError as error:
                is_unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if not left or not (is_read or is_unsent):
                    # The next request starts with another address: this one has just failed.
                    self._advance()
                    raise
            else:
                if not left or not is_read or answer.status_code not in _RETRIED:
                    return answer
                answer.close()
            self._advance()
        raise AssertionError

    def close(self) -> None:
        self._inner.close()

    def _advance(self) -> None:
        self.current = (self.current + 1) % len(self._bases)

    def _address(self, request: httpx.Request, path: bytes) -> None:
        base = self._bases[self.current]
        prefix = self._bases[0].raw_path.rstrip(b"/")
        own_path = base.raw_path.rstrip(b"/") + path.removeprefix(prefix)
        request.url = base.copy_with(raw_path=own_path)
        request.headers["host"] = base.netloc.decode("ascii")


def _share(timeouts: dict[str, Any], parts: int, *, reads: bool) -> dict[str, Any]:
    """Leaves time for the other addresses."""
    limited = {"connect": min(timeouts.get("connect") or _CONNECT_S, _CONNECT_S)}
    if reads and timeouts.get("read"):
        limited["read"] = timeouts["read"] / parts
    return timeouts | limited


class Service:
    """A synchronous client of one service, at one or several addresses."""

    def __init__(
        self,
        url: str | tuple[str, ...],
        token: str = "",
        tls_files: TlsFiles = NO_TLS_FILES,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        token_source: str = "",
    ) -> None:
        self.urls = (url.rstrip("/"),) if isinstance(url, str) else url
        self._options: dict[str, Any] = {"token": token, "tls_files": tls_files, "token_source": token_source}
        self.timeout_s = timeout_s
        self.token_source = token_source or ("--token" if token else "")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        verify = tls_files.context(",".join(self.urls))
        try:
            self._transport = FailoverTransport(self.urls, httpx.HTTPTransport(verify=verify))
            # The proxies of the environment lead out of the network; the service is inside it.
            self.http = httpx.Client(
                base_url=self.urls[0],
                headers=headers,
                timeout=timeout_s,
                trust_env=False,
                transport=self._transport,
                event_hooks={"response": [staleness().read_headers]},
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise SettingsError(
                f"{', '.join(self.urls)!r} is not the address of a service.", advice=f"Example: {DEFAULT_URL}."
            ) from error

    @classmethod
    def of(cls, connection: Connection) -> Self:
        return cls(
            connection.urls,
            connection.token,
            connection.tls_files,
            timeout_s=connection.timeout_s,
            token_source=connection.token_source,
        )

    @property
    def url(self) -> str:
        """The address that the next request goes to, which is the one that answered last."""
        return self.urls[self._transport.current]

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
        timeout_seconds: float | None = None,
    ) -> Any:
        """Returns the answer's JSON. Raises an error that decides the exit code."""
        given = {key: value for key, value in (params or {}).items() if value is not None}
        with self.connection_errors():
            answer = self._answer(method, path, given, body, timeout_seconds or self.timeout_s)
        if answer.is_success:
            return answer.json() if answer.content else {}
        error = error_of(answer, token_source=self.token_source)
        kind, name = _missing_thing(answer)
        raise AnswerIsNoError(error.message, advice=self.advice_about(kind, name)) if kind else error

    def names(self, kind: str) -> Iterator[str]:
        path, key, name, _ = _LISTS[kind]
        for one in self.pages(path, key):
            yield one[name]

    def advice_about(self, kind: str, name: str) -> str:
        """The nearest names that the address that has answered knows, for a name that does not exist."""
        near: list[str] = []
        with suppress(RoutebookError), Service(self.url, **self._options, timeout_s=_NAMES_TIMEOUT_S) as quick:
            # The name itself may exist, and the request have asked for it in a cluster that does not have it.
            names = (one for one in islice(quick.names(kind), _MOST_COMPARED) if one != name)
            near = difflib.get_close_matches(name, list(names), n=3, cutoff=0.7)
        hint = f"Did you mean {' or '.join(repr(one) for one in near)}? " if near else ""
        return f"{hint}`{_LISTS[kind][3]}` lists all of them."

    def _answer(self, method: str, path: str, params: dict[str, Any], body: object, timeout_s: float) -> httpx.Response:
        """Repeats a read that failed at all addresses, within the timeout. A write is not repeated: it may have been
        carried out.
        """
        deadline = time.monotonic() + timeout_s
        pauses = _RETRY_PAUSES_S if method == "GET" else ()
        for pause_s in (*pauses, None):
            left_s = deadline - time.monotonic()
            is_last = pause_s is None or left_s <= pause_s
            try:
                answer = self.http.request(method, path, params=params, json=body, timeout=max(left_s, 0.1))
            except httpx.UnsupportedProtocol:
                raise
            except httpx.TransportError as error:
                # A second attempt does not make a certificate valid.
                if is_last or "[SSL" in str(error):
                    raise
            else:
                if is_last or answer.status_code not in _RETRIED:
                    return answer
            time.sleep(pause_s or 0)
        raise AssertionError

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
            reason = str(error) or type(error).__name__
            raise ServiceUnreachableError(
                f"No answer from {', '.join(self.urls)}: {reason}.",
                advice=_advice_about(error, self.urls, self._options["tls_files"].cacert),
            ) from error


def _advice_about(error: httpx.TransportError, urls: Iterable[str], cacert: str) -> str:
    text = str(error)
    is_https = any(url.lower().startswith("https:") for url in urls)
    match text:
        case _ if is_https and "CERTIFICATE_VERIFY_FAILED" in text and "mismatch" not in text and cacert:
            advice = (
                f"No authority in {cacert} has signed the certificate of the service: pass the one that has with "
                "--cacert FILE, or --insecure to accept any certificate."
            )
        case _ if is_https and "self-signed certificate" in text:
            advice = (
                "It is a test certificate, or comes from an authority of your own: pass the authority with --cacert "
                "FILE (`routebook certs` writes ca.pem), or --insecure to accept any certificate."
            )
        case _ if is_https and "mismatch" in text and "CERTIFICATE_VERIFY_FAILED" in text:
            advice = "Use a name in --url that the certificate contains, or --insecure to accept any certificate."
        case _ if is_https and "CERTIFICATE_VERIFY_FAILED" in text:
            advice = "Pass the authority of the service with --cacert FILE, or --insecure to accept any certificate."
        case _ if is_https and "WRONG_VERSION_NUMBER" in text:
            advice = "This port does not use TLS: use http:// in --url."
        case _ if is_https and _is_about_certificates(error):
            advice = "Name the service's authority with --cacert, and a client certificate with --cert and --key."
        case _ if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
            advice = (
                "The server closed the connection. --url names the HTTP port, not the RocketMQ port; if it requires "
                "TLS, use https:// in --url."
            )
        case _:
            advice = (
                f"Start one with `routebook up`, or name another with --url, {URL_VARIABLE} or `routebook context use`."
            )
    return advice


def _is_about_certificates(error: httpx.TransportError) -> bool:
    """Whether a https service may have refused the certificate. It does that after the handshake, so what arrives here
    is an error of TLS or the end of the connection.
    """
    return "[SSL" in str(error) or isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError)


def _advice_about_token(problem: dict[str, Any], source: str) -> str:
    """What to do, in terms of the command line; the service's own advice names headers. Empty: it is not about that."""
    match str(problem.get("type", "")):
        case "token-missing" if "has no token yet" in str(problem.get("detail")):
            return "Set ROUTEBOOK_ADMIN_TOKEN on the service, then pass that token with --token."
        case "token-missing":
            return (
                f"Pass one with --token, {TOKEN_VARIABLES[0]} or a context (`routebook context set NAME --token "
                "TOKEN`); `routebook token create` makes one."
            )
        case "token-wrong":
            return (
                f"The token came from {source}. `routebook token list` shows the identities and when they expire; "
                "`routebook token create` makes a token."
            )
        case "forbidden":
            return (
                f"The token came from {source}. Pass the token of another identity with --token; `routebook token "
                "list` shows what each one may do."
            )
        case _:
            return ""


def error_of(answer: httpx.Response, *, token_source: str = "") -> RoutebookError:
    """Converts problem+json: 404 and 409 mean "the answer is no", 400, 403 and 422 wrong usage, 5xx unreachable."""
    problem = _problem(answer)
    message = str(problem.get("detail") or problem.get("title") or f"HTTP status {answer.status_code}.")
    advice = _advice_about_token(problem, token_source or "the command line") or str(problem.get("advice") or "")
    status = answer.status_code
    if status == 404 and problem.get("type", "no-such-path") == "no-such-path":
        return ServiceUnreachableError(
            f"The server at {answer.url} is not a Routebook, or one of another version.",
            advice=f"Name the HTTP port of a Routebook with --url or {URL_VARIABLE}.",
        )
    if not problem and not answer.content.startswith((b"<", b"{")) and 0 < len(answer.content) < 200:
        # Such as the RocketMQ port's: it says where the HTTP port is.
        return ServiceUnreachableError(f"{answer.url.netloc.decode()}: {answer.text.strip()}", advice="Correct --url.")
    if status == 410:
        return HistoryMissingError(message, advice=advice)
    if status >= 500 or status == 429:
        return ServiceUnreachableError(message, advice=advice)
    if status in (400, 401, 403, 405, 413, 415, 421, 422):
        return SettingsError(message, advice=advice)
    return AnswerIsNoError(message, advice=advice)


def _missing_thing(answer: httpx.Response) -> tuple[str, str]:
    """Kind and name of what does not exist, if the service answered that and there is a list of its kind."""
    problem = _problem(answer) if answer.status_code == 404 else {}
    kind, name = str(problem.get("type", "")).removesuffix("-not-found"), str(problem.get("name", ""))
    # The name of one broker of a group, `cluster/group/id`, is in no list.
    is_listed = kind in _LISTS and not (kind == "broker" and "/" in name)
    return (kind, name) if is_listed and name else ("", "")


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
    return chosen_connection().token


def with_tls_files(command: Callable[..., R]) -> Callable[..., R]:
    """Adds the options --cacert, --cert, --key and --insecure, and passes the files as `tls_files`."""

    @tls_options
    @wraps(command)
    def with_files(*args: Any, **kwargs: Any) -> R:
        return command(*args, tls_files=chosen_connection().tls_files, **kwargs)

    return with_files


def with_service(command: Callable[Concatenate[Service, P], R]) -> Callable[..., R]:
    """Passes a client to a command and adds the options of the connection."""

    @connection_options
    @wraps(command)
    def with_client(*args: Any, **kwargs: Any) -> R:
        with Service.of(chosen_connection()) as service:
            return command(service, *args, **kwargs)

    return with_client
