"""What the client for asyncio and the one for threads share besides their requests: options, streams, seats."""

import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import httpx

from routebook.client.model import ClientError, UnreachableError
from routebook.client.requests import (
    KEEP_ALIVE_S,
    Answer,
    EventReader,
    Request,
    Requests,
    Seat,
    problem_of,
    tls_context,
)


class BaseClient:
    """Asks a service at one or several addresses (a list, or one text with commas)."""

    _http_class: ClassVar[type[httpx.AsyncClient | httpx.Client]]

    def __init__(
        self,
        urls: str | Iterable[str] | None = None,
        *,
        token: str | None = None,
        timeout_s: float = 5.0,
        retries: int = 3,
        cache_s: float = 0.0,
        cacert: str = "",
        certificate: str | tuple[str, str] = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Without `urls` and `token`, those of the command line are used: ROUTEBOOK_URL and ROUTEBOOK_TOKEN.

        `cache_s`: a route younger than this is not read again; RocketMQ's clients use 30. `cacert` is a file with
        trusted authorities; `certificate` one with the client's certificate and key, or two.
        """
        self._requests = Requests(urls, token=token, retries=retries, cache_s=cache_s)
        context = tls or tls_context(cacert, certificate)
        self._http: Any = self._http_class(timeout=timeout_s, trust_env=False, verify=context)


class BaseRegistration:
    """A broker that stays registered as long as the block runs."""

    def __init__(self, requests: Requests, run: Callable[..., Any], seat: Seat) -> None:
        self._requests, self._run, self._seat = requests, run, seat
        self.result: Mapping[str, Any] = {}
        """What the service answered to the registration: among others the version, and the master's address."""
        self.last_error: ClientError | None = None
        """Why the last heartbeat failed; None while all is well."""


class Connecting:
    """The connections of one stream: each resumes behind the last event."""

    def __init__(self, requests: Requests, path: str, params: Mapping[str, Any]) -> None:
        self.reader = EventReader()
        self._requests, self._path, self._params = requests, path, params
        self._failures = 0

    def options(self) -> dict[str, Any]:
        """The arguments of `httpx.stream` for the next connection."""
        return {
            **options_of(self._requests.stream(self._path, self._params, self.reader.last_id)),
            "timeout": httpx.Timeout(KEEP_ALIVE_S, read=3 * KEEP_ALIVE_S),
        }

    def connected(self, answer: httpx.Response) -> str:
        """The name of the history that the events belong to."""
        self._failures = 0
        history: str = answer.headers.get("x-routebook-history", "")
        return history

    def refused(self, answer: httpx.Response) -> None:
        """After an answer that is no stream, and that has been read. It may be a temporary one."""
        problem = problem_of(answer_of(answer), self._requests.url)
        if not isinstance(problem, UnreachableError):
            raise problem

    def pause_s(self) -> float:
        """How long to wait before the next connection, which goes to the next address."""
        self.reader.clear()
        self._requests.use_next()
        self._failures += 1
        return self._requests.pause(self._failures - 1).seconds


def options_of(request: Request) -> dict[str, Any]:
    """As arguments of httpx."""
    options: dict[str, Any] = {"method": request.method, "url": request.url}
    options |= {"params": dict(request.params), "headers": dict(request.headers)}
    return options | ({"content": request.body} if request.body else {})


def answer_of(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.headers, response.content)
