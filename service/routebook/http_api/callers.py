"""The sender of a request, and its permission for administrative verbs. That rule is only here.

Administrative verbs need no token from loopback and need it from elsewhere. The headers of a request can only take
permission away: a forwarding header shows that a proxy relays the request of another client, a foreign `Origin` shows
that the page of another site sent it, and a `Host` with a domain name may belong to a page whose name was made to
resolve to this machine (DNS rebinding).
"""

import hmac
from ipaddress import IPv6Address, ip_address
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from routebook.errors import ForbiddenError
from routebook.http_api import problems
from routebook.http_api.audit import note_of, source_of
from routebook.http_api.dependencies import LiveSettingsDep, RegistryDep
from routebook.http_api.problems import Problem
from routebook.model.names import ANONYMOUS, Caller

_FORWARDING_HEADERS: Final = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="admin token",
    description="`ROUTEBOOK_ADMIN_TOKEN`; not needed from loopback.",
)


def caller_of(request: Request, registry: RegistryDep) -> Caller:
    """The caller of a write that needs no token. It refuses pages of other sites."""
    caller = _note_caller(request, registry, ANONYMOUS)
    _refuse_foreign_origin(request)
    return caller


async def administrator_of(
    request: Request,
    registry: RegistryDep,
    live_settings: LiveSettingsDep,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
) -> Caller:
    """Allows or refuses an administrative verb. `AuditMiddleware` records the caller and the result."""
    _note_caller(request, registry, ANONYMOUS)
    _refuse_foreign_origin(request)
    actor = _actor(request, live_settings.current.admin_token, credentials)
    return _note_caller(request, registry, actor)


def _note_caller(request: Request, registry: RegistryDep, actor: str) -> Caller:
    verb = getattr(request.scope.get("route"), "name", "register_broker")
    source = source_of(request.scope)
    caller = Caller(actor, source, worker=registry.worker, port="http", verb=verb)
    note_of(request.scope).caller = caller
    return caller


CallerDep = Annotated[Caller, Depends(caller_of)]
AdministratorDep = Annotated[Caller, Depends(administrator_of)]


def _actor(request: Request, secret: str, credentials: HTTPAuthorizationCredentials | None) -> str:
    if secret and credentials and hmac.compare_digest(credentials.credentials.encode(), secret.encode()):
        return "admin-token"
    if is_from_loopback(request):
        return "operator"
    if secret:
        raise ForbiddenError(
            "Administrative verbs need the token when they do not come from loopback.",
            advice="Send `Authorization: Bearer <ROUTEBOOK_ADMIN_TOKEN>`.",
        )
    raise ForbiddenError(
        "Administrative verbs are allowed from loopback only.",
        advice="Set ROUTEBOOK_ADMIN_TOKEN on the service and send it as a bearer token, or send the request "
        "from the same host, without a proxy, to its address or to localhost.",
    )


def is_from_loopback(request: Request) -> bool:
    """A Unix socket is not loopback: it has no peer address, and the client of a proxy in front of it is unknown."""
    if request.client is None or any(name in request.headers for name in _FORWARDING_HEADERS):
        return False
    return _is_loopback_address(request.client.host) and not _is_domain_name(request.headers.get("host", ""))


def _is_loopback_address(host: str) -> bool:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_loopback


def _is_domain_name(host_header: str) -> bool:
    """`localhost` and names without a dot cannot be registered, so no page of another site can have them."""
    try:
        name = (urlsplit(f"//{host_header}").hostname or "").rstrip(".")
        ip_address(name)
    except ValueError:
        return not _is_local_name(host_header)
    return False


def _is_local_name(host_header: str) -> bool:
    name = host_header.rpartition(":")[0] or host_header
    name = name.rstrip(".").lower()
    return "." not in name or name.endswith(".localhost")


def _refuse_foreign_origin(request: Request) -> None:
    """Browsers send the page's origin with every write; other clients do not."""
    origin = request.headers.get("origin")
    if origin is None or _is_same_origin(origin, request.headers.get("host", "")):
        return
    raise Problem(
        problems.FOREIGN_ORIGIN,
        f"A page from {origin[:200]!r} may not send this request.",
        advice="Use the pages that Routebook serves, at the same address.",
    )


def _is_same_origin(origin: str, host_header: str) -> bool:
    try:
        page = urlsplit(origin)
        here = urlsplit(f"//{host_header}")
        standard = _DEFAULT_PORTS.get(page.scheme)
        ports = (page.port or standard, here.port or standard)
    except ValueError:
        return False
    return bool(page.hostname) and page.hostname == here.hostname and ports[0] == ports[1]
