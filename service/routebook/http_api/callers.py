"""The sender of a request and its permissions. No other module decides about permissions of the HTTP port.

Every path operation that changes something demands a role. A caller proves its role with a token or a client
certificate. A service that listens on loopback only also trusts local callers without one; it does not do that when
it listens on other addresses too, because a relay on the same machine makes every client look local.

The headers of a request can only take permission away: a forwarding header shows that a proxy relays the request of
another client, and a foreign `Origin` shows that the page of another site sent it. `HostMiddleware` refuses requests
whose `Host` is not a name of this service (DNS rebinding).
"""

import hmac
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from ipaddress import IPv6Address, ip_address
from typing import Annotated, Final
from urllib.parse import urlencode, urlsplit

from fastapi import Depends, Request, Response, Security
from fastapi.security import HTTPBearer
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as ASGIScope

from routebook.errors import ForbiddenError, NotReadyError, RoutebookError
from routebook.http_api import problems
from routebook.http_api.audit import note_of, object_of, source_of
from routebook.http_api.dependencies import AppContext, ContextDep
from routebook.http_api.problems import Problem
from routebook.listeners.peers import Peer
from routebook.model.broker import ORDER_TOPIC_NAMESPACE
from routebook.model.identity import Identity, Role, policy_text
from routebook.model.names import ANONYMOUS, Caller
from routebook.registry.registry import Registry

CERTIFICATE_NAMES: Final = "certificate_names"
"""Key of the ASGI state: the names in the client's verified certificate (`serving.py`)."""

ADMIN_TOKEN: Final = Identity("admin-token", Role.ADMIN)
LOCAL: Final = Identity("operator", Role.ADMIN)
"""A local caller of a service that listens on loopback only."""

_FORWARDING_HEADERS: Final = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_WHAT_TO_SEND: Final = (
    "Send `Authorization: Bearer <token>`: ROUTEBOOK_ADMIN_TOKEN, or a token of `routebook token create`."
)

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="`ROUTEBOOK_ADMIN_TOKEN`, or the token of an identity (`routebook token create`). Not needed when the "
    "service listens on loopback only.",
)


# -- who sends the request


def identify(request: Request, context: AppContext) -> Identity | None:
    """The identity that the request proves. None if it does not try to; a wrong token is refused."""
    token = _bearer_token(request)
    if token is not None:
        return identify_by_token(token, context, context.peer_of(request))
    found = context.registry.identities.by_certificates(request.scope.get("state", {}).get(CERTIFICATE_NAMES, ()))
    if found is None and context.live_settings.current.listens_on_loopback_only and is_from_loopback(request):
        return LOCAL
    return found


SIGN_IN_COOKIE: Final = "routebook_console"
CONSOLE_PATH: Final = "/console/"


def _bearer_token(request: Request) -> str | None:
    """From the header, or in the console from its cookie, which the API ignores."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return request.cookies.get(SIGN_IN_COOKIE) if request.url.path.startswith(CONSOLE_PATH) else None


def identify_by_token(token: str, context: AppContext, peer: Peer) -> Identity:
    """An address that has sent too many wrong tokens is refused before its token is checked. Otherwise the answer
    would still distinguish a right guess from a wrong one.
    """
    now = time.monotonic()
    wait_s = peer.sign_ins.wait_s(now, 1)
    if wait_s > 0:
        raise Problem(
            replace(problems.TOO_MANY_SIGN_INS, headers={"Retry-After": str(math.ceil(wait_s))}),
            f"Too many wrong tokens came from {peer.host} (max_failed_sign_ins_per_minute_per_address is "
            f"{peer.sign_ins.burst:g}).",
            advice="Correct the token of that client. After the wait, its next one is checked.",
        )
    admin_token = context.live_settings.current.admin_token
    if admin_token and hmac.compare_digest(token.encode("utf-8", "surrogatepass"), admin_token.encode()):
        return ADMIN_TOKEN
    identities = context.registry.identities
    found = identities.by_token(token)
    if found is not None:
        return found
    if not identities.are_loaded:
        raise NotReadyError("The identities are not loaded yet.", advice="Try again in a second.")
    peer.sign_ins.take(1, now)
    raise Problem(
        problems.WRONG_TOKEN,
        "The token is wrong: no identity has it. It may be revoked or expired.",
        advice="`routebook token list` shows the identities and when they expire.",
    )


def is_from_loopback(request: Request) -> bool:
    """A Unix socket is not loopback: it has no peer address, and the client of a proxy in front of it is unknown."""
    if request.client is None or any(name in request.headers for name in _FORWARDING_HEADERS):
        return False
    return _is_loopback_address(request.client.host)


def _is_loopback_address(host: str) -> bool:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_loopback


# -- what it may do

Scope = Callable[[Request, Registry, Identity], bool]
"""Whether the policy of an identity covers everything that the request concerns. Called only for limited policies."""


def whole_fleet(request: Request, registry: Registry, identity: Identity) -> bool:
    del request, registry, identity
    return False


def one_seat(request: Request, registry: Registry, identity: Identity) -> bool:
    del registry
    return covers_seat(identity, request.path_params["cluster"], request.path_params["name"])


def covers_seat(identity: Identity, cluster: str, broker: str) -> bool:
    return identity.covers_cluster(cluster) and identity.covers_broker(broker)


def one_group(request: Request, registry: Registry, identity: Identity) -> bool:
    return covers_group(identity, registry, request.path_params["name"])


def covers_group(identity: Identity, registry: Registry, broker: str) -> bool:
    """The cluster of a group that is not in the table is unknown, so only a policy for all clusters covers it."""
    group = registry.replica.view.groups.get(broker)
    cluster_is_covered = identity.covers_cluster(group.cluster) if group else not identity.clusters
    return cluster_is_covered and identity.covers_broker(broker)


def one_topic(request: Request, registry: Registry, identity: Identity) -> bool:
    """With all broker groups that have it, as far as they are in the cluster that the request names."""
    return covers_topic(identity, registry, request.path_params["topic"], request.query_params.get("cluster"))


def covers_topic(identity: Identity, registry: Registry, topic: str, cluster: str | None) -> bool:
    view = registry.replica.view
    listed = view.clusters.get(cluster, set()) if cluster else None
    return identity.covers_topic(topic) and all(
        covers_group(identity, registry, broker)
        for broker in view.brokers_of(topic)
        if listed is None or broker in listed
    )


def topic_name(request: Request, registry: Registry, identity: Identity) -> bool:
    """Only the topic. The path operation checks the brokers that the body names, with `check_groups`."""
    del registry
    return identity.covers_topic(request.path_params["topic"])


def order_topic(request: Request, registry: Registry, identity: Identity) -> bool:
    """The key of an order configuration is a topic. Key-values of other namespaces concern the whole fleet."""
    del registry
    return covers_key(identity, request.path_params["namespace"], request.path_params["key"])


def covers_key(identity: Identity, namespace: str, key: str) -> bool:
    is_about_topics = namespace == ORDER_TOPIC_NAMESPACE and not identity.clusters
    return is_about_topics and not identity.brokers and identity.covers_topic(key)


def authorize(
    request: Request, context: AppContext, role: Role, covers: Callable[[Identity], bool], *, is_open: bool = False
) -> Caller:
    """`is_open`: callers without an identity are allowed too. Raises a problem that says what is wrong: the token is
    missing, the token is wrong, or the identity may not do this. `AuditMiddleware` records the caller and the result.
    """
    anonymous = _note_caller(request, context, ANONYMOUS)
    refuse_foreign_origin(request)
    identity = identify(request, context)
    if is_open and identity in (None, LOCAL):
        return anonymous
    if identity is None:
        raise _missing_token(context, role)
    caller = _note_caller(request, context, identity.name, None if identity is LOCAL else identity)
    if identity.role < role:
        raise ForbiddenError(
            f"Identity {identity.name!r} has the role {identity.role.label}; this request needs {role.label}.",
            advice="Use an identity with that role (`routebook token create --role`).",
        )
    if identity.is_limited and not covers(identity):
        raise _uncovered(identity)
    return caller


def _uncovered(identity: Identity) -> ForbiddenError:
    return ForbiddenError(
        f"The policy of identity {identity.name!r} does not cover this request; it covers {policy_text(identity)}.",
        advice="Use an identity whose policy covers all that the request concerns.",
    )


def _note_caller(request: Request, context: AppContext, actor: str, identity: Identity | None = None) -> Caller:
    verb = getattr(request.scope.get("route"), "name", "register_broker")
    source, worker = source_of(request.scope), context.registry.worker
    caller = Caller(actor, source, identity, worker=worker, port="http", verb=verb)
    note_of(request.scope).caller = caller
    return caller


def _missing_token(context: AppContext, role: Role) -> Problem:
    detail = f"This request needs a token with the role {role.label}, and it has none."
    if context.live_settings.current.admin_token or context.registry.identities.any:
        return Problem(problems.MISSING_TOKEN, detail, advice=_WHAT_TO_SEND)
    return Problem(
        problems.MISSING_TOKEN,
        f"{detail} The service has no token yet.",
        advice="Set ROUTEBOOK_ADMIN_TOKEN on the service and send it as `Authorization: Bearer <token>`. A service "
        "that listens on loopback only needs no token for local callers.",
    )


def check_groups(caller: Caller, registry: Registry, brokers: list[str]) -> None:
    """For requests whose body names the broker groups."""
    identity = caller.identity
    if identity is None or not identity.is_limited:
        return
    outside = [broker for broker in brokers if not covers_group(identity, registry, broker)]
    if outside:
        raise ForbiddenError(
            f"The policy of identity {identity.name!r} does not cover broker {outside[0]!r}.",
            advice=f"It covers {policy_text(identity)}.",
        )


# -- dependencies of the path operations


def administrator_with(role: Role, scope: Scope = whole_fleet) -> Callable[..., Awaitable[Caller]]:
    """A dependency for administrative verbs."""

    async def administrator_of(
        request: Request, context: ContextDep, _token: Annotated[object, Security(_bearer)]
    ) -> Caller:
        return authorize(request, context, role, lambda identity: scope(request, context.registry, identity))

    return administrator_of


def broker_with(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """A dependency for what brokers send. It needs no token until an identity with the role `broker` exists."""

    async def broker_of(request: Request, context: ContextDep, _token: Annotated[object, Security(_bearer)]) -> Caller:
        is_open = not context.registry.identities.has_brokers
        return authorize(
            request, context, Role.BROKER, lambda identity: scope(request, context.registry, identity), is_open=is_open
        )

    return broker_of


AdminDep = Annotated[Caller, Depends(administrator_with(Role.ADMIN))]
OperatorDep = Annotated[Caller, Depends(administrator_with(Role.OPERATOR))]
GroupOperatorDep = Annotated[Caller, Depends(administrator_with(Role.OPERATOR, one_group))]
SeatOwnerDep = Annotated[Caller, Depends(administrator_with(Role.BROKER, one_seat))]
"""A broker may remove itself, but only with a token: otherwise any peer could remove it."""
TopicOperatorDep = Annotated[Caller, Depends(administrator_with(Role.OPERATOR, one_topic))]
KvOperatorDep = Annotated[Caller, Depends(administrator_with(Role.OPERATOR, order_topic))]
SeatBrokerDep = Annotated[Caller, Depends(broker_with(one_seat))]
TopicBrokerDep = Annotated[Caller, Depends(broker_with(topic_name))]


def refuse_foreign_origin(request: Request) -> None:
    """Browsers send the page's origin with every write; other clients do not."""
    origin = request.headers.get("origin")
    if origin is None or _is_same_origin(origin, request.headers.get("host", "")):
        return
    raise Problem(
        problems.FOREIGN_ORIGIN,
        f"A page from {origin[:200]!r} may not send this request.",
        advice="Use the pages that Routebook serves, at the same address.",
    )


def require_same_origin(request: Request) -> None:
    """For forms, which only a browser sends: it names the origin of the page with each of them."""
    if request.headers.get("origin") is None:
        raise Problem(
            problems.FOREIGN_ORIGIN,
            "The request does not name the page that it comes from.",
            advice="Use a browser for the console, and the API (/docs) for programs.",
        )
    refuse_foreign_origin(request)


def _is_same_origin(origin: str, host_header: str) -> bool:
    try:
        page = urlsplit(origin)
        here = urlsplit(f"//{host_header}")
        standard = _DEFAULT_PORTS.get(page.scheme)
        ports = (page.port or standard, here.port or standard)
    except ValueError:
        return False
    return bool(page.hostname) and page.hostname == here.hostname and ports[0] == ports[1]


SIGN_IN_PATH: Final = "/console/sign-in"
_OPEN_READS: Final = ("/rocketmq/", "/docs", "/openapi.json", SIGN_IN_PATH, "/console/assets/")
"""RocketMQ's peers cannot send a token when they ask for their name servers, and the others contain no data."""


def sign_in_first(scope: ASGIScope, *, is_wrong: bool) -> Response:
    """Leads to the sign-in and back. A cookie with a wrong token is removed: each use would count as a failed sign-in.
    A missing one may exist all the same, since browsers do not send it when a link of another site is followed.
    """
    here = str(scope["path"]) + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
    response = RedirectResponse(f"{SIGN_IN_PATH}?{urlencode({'next': here})}", 303)
    if is_wrong:
        forget_sign_in(response)
    return response


def forget_sign_in(response: Response) -> None:
    response.delete_cookie(SIGN_IN_COOKIE, path=CONSOLE_PATH, httponly=True, samesite="strict")


def _is_open_read(path: str) -> bool:
    return path == "/" or path.startswith(_OPEN_READS)


_READS_OF_ONE: Final = (
    ("/v1/routes/", "topic"),
    ("/v1/topics/", "topic"),
    ("/v1/brokers/", "broker"),
    ("/v1/clusters/", "cluster"),
)
"""Paths that end with a name, and what has it."""
_PAGES_OF_ONE: Final = {"/console/topic": "topic", "/console/broker": "broker"}
"""Pages of the console whose parameter `name` is that name."""


def covers_read(identity: Identity, registry: Registry, path: str, query: Iterable[tuple[str, str]]) -> bool:
    """Whether the policy covers every topic, broker and cluster that a read names. As on the remoting port, a read that
    names none is not limited: lists have all names.
    """
    page = _PAGES_OF_ONE.get(path)
    named = [(page if page and key == "name" else key, name) for key, name in query if name]
    named += [(kind, path[len(start) :]) for start, kind in _READS_OF_ONE if path.startswith(start)]
    covers: Mapping[str, Callable[[str], bool]] = {
        "topic": identity.covers_topic,
        "broker": lambda name: covers_group(identity, registry, name),
        "cluster": identity.covers_cluster,
    }
    return all(covers[kind](name) for kind, name in named if kind in covers)


class ReadGuard:
    """Demands the role `read` of every read, and a policy that covers what it names. Only used with `http_reads=token`,
    so that open reads cost nothing.
    """

    def __init__(self, app: ASGIApp, context: AppContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and not _is_open_read(scope["path"]):
            request = Request(scope)
            try:
                identity = identify(request, self._context)
                if identity is None:
                    raise _missing_token(self._context, Role.READ)
            except RoutebookError as error:
                await self._refuse(problems.error_response(error), scope, receive, send)
                return
            except Problem as error:
                if scope["path"].startswith(CONSOLE_PATH) and error.kind in (
                    problems.MISSING_TOKEN,
                    problems.WRONG_TOKEN,
                ):
                    await sign_in_first(scope, is_wrong=error.kind is problems.WRONG_TOKEN)(scope, receive, send)
                    return
                response = problems.problem_response(error.kind, error.detail, advice=error.advice)
                await self._refuse(response, scope, receive, send)
                return
            names = request.query_params.multi_items()
            if identity.is_limited and not covers_read(identity, self._context.registry, scope["path"], names):
                response = problems.error_response(_uncovered(identity))
                await self._refuse(response, scope, receive, send, identity)
                return
        await self._app(scope, receive, send)

    async def _refuse(
        self, response: Response, scope: ASGIScope, receive: Receive, send: Send, identity: Identity | None = None
    ) -> None:
        registry, actor = self._context.registry, identity.name if identity else ANONYMOUS
        caller = Caller(actor, source_of(scope), identity, worker=registry.worker, port="http", verb="read")
        registry.audit.refused(caller, what=object_of(scope), reason=f"status {response.status_code}")
        await response(scope, receive, send)
