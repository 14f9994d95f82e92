"""Refuses requests whose `Host` header is not an address or a name of this service.

A page of another site can make its own name resolve to this machine (DNS rebinding). The browser then takes this
service for that site, and the page may read the answers. The `Host` header still has the page's name, so a service
that answers only to its own names cannot be used in this way. A host name without a dot is no exception: resolvers
complete it with a search domain, and anyone may have registered a name in that domain.
"""

import socket
from collections.abc import Awaitable
from ipaddress import ip_address
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from routebook.http_api import problems
from routebook.http_api.audit import object_of, source_of
from routebook.http_api.problems import problem_response
from routebook.model.names import ANONYMOUS, Caller
from routebook.registry.registry import Registry
from routebook.settings import Settings

_LOCALHOST: Final = "localhost"
ANY_NAME: Final = "*"
_MAX_CACHED: Final = 1_000


def host_of(header: str) -> str:
    """The host in a `Host` header, in lower case, without port, brackets and the final dot."""
    host, _, port = header.strip().lower().partition("]")
    if host.startswith("[") and (not port or port.startswith(":")):
        return host[1:]
    return header.strip().lower().partition(":")[0].removesuffix(".")


def own_names(settings: Settings) -> frozenset[str]:
    advertised = (host_of(address) for address in settings.advertised)
    return frozenset({_LOCALHOST, socket.gethostname().lower(), *advertised, *settings.host_names})


def is_own_host(host: str, names: frozenset[str]) -> bool:
    """`host` as `host_of` returns it. A name that begins with `*.` covers all names below it."""
    if host in names or ANY_NAME in names or not host:
        return True
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return any(name.startswith("*.") and host.endswith(name[1:]) for name in names)
    return True


class HostMiddleware:
    """In front of everything else of the port. Headers that were accepted are remembered, so that a lookup costs one
    search in a dictionary.
    """

    def __init__(self, app: ASGIApp, registry: Registry, settings: Settings) -> None:
        self._app = app
        self._registry = registry
        self._names = own_names(settings)
        self._accepted: dict[bytes, bool] = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Not a coroutine itself, which would cost each lookup as much as the check."""
        for name, value in scope.get("headers", ()):
            if name == b"host":
                # Nothing reads a second `Host`.
                if value in self._accepted or self._accepts(value):
                    break
                return self._refuse(value, scope, receive, send)
        return self._app(scope, receive, send)

    def _accepts(self, value: bytes) -> bool:
        if not is_own_host(host_of(value.decode("latin-1")), self._names):
            return False
        if len(self._accepted) < _MAX_CACHED:
            self._accepted[value] = True
        return True

    async def _refuse(self, value: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        detail = f"{value[:200].decode('ascii', 'backslashreplace')!r} is not a name of this service."
        verb = f"{scope['method'].lower()[:10]} request"
        caller = Caller(ANONYMOUS, source_of(scope), worker=self._registry.worker, port="http", verb=verb)
        self._registry.audit.refused(caller, what=object_of(scope), reason=f"{problems.WRONG_HOST.type}: {detail}")
        response = problem_response(
            problems.WRONG_HOST,
            detail,
            advice="Use its address, or add the name to ROUTEBOOK_HTTP_HOST_NAMES (http_host_names).",
        )
        await response(scope, receive, send)
