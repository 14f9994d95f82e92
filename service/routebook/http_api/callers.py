"""Who asks, and may they? The one home of the rule for administrative verbs.

From loopback freely, from elsewhere with the token. What a request may *say* about itself only ever takes
permission away: a forwarding header means that somebody else stands behind the loopback connection, a
foreign `Origin` that a web page does, and a `Host` that is a domain name may be a page's own name made to
point here (DNS rebinding).
"""

import hmac
import logging
from collections.abc import AsyncIterator
from ipaddress import IPv6Address, ip_address
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from routebook.errors import ForbiddenError, RoutebookError
from routebook.http_api import problems
from routebook.http_api.dependencies import LiveSettingsOf, RegistryOf
from routebook.http_api.problems import Problem
from routebook.model.names import Caller

audit = logging.getLogger("routebook.audit")

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


def source_of(request: Request) -> str:
    """The peer's address as the change history shall name it."""
    if request.client is None:
        return "unix"
    host = f"[{request.client.host}]" if ":" in request.client.host else request.client.host
    return f"{host}:{request.client.port}"


def caller_of(request: Request, registry: RegistryOf) -> Caller:
    """Whoever writes; open to all, but not to the pages of other sites. It acts through this worker."""
    _refuse_foreign_origin(request)
    return Caller(actor=registry.worker, source=source_of(request))


async def administrator_of(
    request: Request,
    live_settings: LiveSettingsOf,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
) -> AsyncIterator[Caller]:
    """Allows or refuses an administrative verb, and writes down who asked and how it ended."""
    verb = f"{request.method} {request.url.path[:300]!r}"
    source = source_of(request)
    try:
        _refuse_foreign_origin(request)
        actor = _actor(request, live_settings.current.admin_token, credentials)
    except (Problem, ForbiddenError):
        audit.warning("administrative %s from %s: refused", verb, source)
        raise
    try:
        yield Caller(actor=actor, source=source)
    except RoutebookError as error:
        audit.info("administrative %s from %s by %s: %s", verb, source, actor, type(error).__name__)
        raise
    audit.info("administrative %s from %s by %s: done", verb, source, actor)


CallerOf = Annotated[Caller, Depends(caller_of)]
AdministratorOf = Annotated[Caller, Depends(administrator_of)]


def _actor(request: Request, secret: str, credentials: HTTPAuthorizationCredentials | None) -> str:
    if secret and credentials and hmac.compare_digest(credentials.credentials.encode(), secret.encode()):
        return "admin-token"
    if is_from_loopback(request):
        return "operator"
    if secret:
        raise ForbiddenError(
            "Administrative verbs from off loopback need the token.",
            advice="Send `Authorization: Bearer <ROUTEBOOK_ADMIN_TOKEN>`.",
        )
    raise ForbiddenError(
        "Administrative verbs are allowed from loopback only.",
        advice="Set ROUTEBOOK_ADMIN_TOKEN on the service and send it as a bearer token, or ask from the same "
        "host without a proxy, by address or as localhost.",
    )


def is_from_loopback(request: Request) -> bool:
    """A Unix socket has no peer address: whoever sits in front of it is unknown, so it does not count."""
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
    """Nobody can register `localhost` or a name without a dot, so those cannot be a stranger's page."""
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
    """Browsers name the page's origin with every write; other clients do not."""
    origin = request.headers.get("origin")
    if origin is None or _same_place(origin, request.headers.get("host", "")):
        return
    raise Problem(
        problems.FOREIGN_ORIGIN,
        f"A page from {origin[:200]!r} may not do this.",
        advice="Use the pages that Routebook serves itself, by the same address.",
    )


def _same_place(origin: str, host_header: str) -> bool:
    try:
        page = urlsplit(origin)
        here = urlsplit(f"//{host_header}")
        standard = _DEFAULT_PORTS.get(page.scheme)
        ports = (page.port or standard, here.port or standard)
    except ValueError:
        return False
    return bool(page.hostname) and page.hostname == here.hostname and ports[0] == ports[1]
