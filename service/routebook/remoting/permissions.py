"""Which permission each request of the remoting port needs, and whether its caller has it.

Apache's name server accepts every request of every peer. That is right on one machine; on a network, any peer could
delete topics and take brokers out of service. So three kinds of requests are guarded, each under its own condition:

- Administrative requests change the fleet by hand, or read key-values and settings. `remoting_admin` decides: they are
  open to every peer (`open`), to identities with the role of an operator (`signed`), or to none (`off`).
- Brokers' own requests need an identity that covers the broker as soon as there is an identity with the role `broker`.
  Then a seat belongs to the identities whose policy covers it.
- With `remoting_access` `signed`, every request needs an identity, lookups too.

An identity is proven by RocketMQ's signature or by a client certificate. The signature of a request that is not guarded
is not checked, so it costs nothing.

The signature is made as by RocketMQ's ACL hook (`AclClientRPCHook`); it is the same in 4.x, 5.x and Go. The header
field `AccessKey` names the signer. `Signature` is the Base64 form of an HMAC-SHA1 with the signer's secret key. It
covers the values of all other header fields, in the order of their names and without separators, and then the body. It
covers neither the request code nor the opaque number, a time or the names of the fields. So a recorded request can be
sent again (docs/security.md).

Java clients with a zone add the zone's fields after they have signed, while brokers add them before. So both forms are
accepted, except of a registration, whose zone is stored. All that a forged zone can do then is filter the answer to the
lookup that carries it.
"""

import hmac
import time
from base64 import b64encode
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from routebook.errors import ForbiddenError
from routebook.listeners.peers import Peer
from routebook.model.broker import ORDER_TOPIC_NAMESPACE
from routebook.model.identity import Identity, Role, policy_text
from routebook.model.names import join_instance_name
from routebook.protocol.frame import Request, RequestCode, request_name
from routebook.protocol.headers import read_text
from routebook.protocol.lookup_template import LookupTemplate
from routebook.registry.registry import Registry
from routebook.remoting.requests import Reply, RequestContext, anonymous_caller, object_of, reply_to_error
from routebook.settings import LiveSettings, Settings

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
ZONE_FIELDS: Final = frozenset({"__ZONE_NAME", "__ZONE_MODE"})
ALGORITHM: Final = "sha1"
"""RocketMQ's choice. SHA-1 is broken for certificates, where collisions matter, but not in an HMAC."""
STEP_BYTES: Final = 1024 * 1024


def signed_text(ext: Mapping[str, str], *, without: frozenset[str] = frozenset()) -> str:
    """What is signed of the header."""
    return "".join([value for name, value in sorted(ext.items()) if name != SIGNATURE and name not in without])


def sign(secret: str, content: bytes) -> str:
    return b64encode(hmac.digest(secret.encode(), content, ALGORITHM)).decode()


def check_signature_in_steps(
    secret: str, ext: Mapping[str, str], body: bytes, *, allows_added_zone: bool = True
) -> Generator[None, None, bool]:
    """Yields about once a millisecond, because a body may have megabytes."""
    sent = ext.get(SIGNATURE, "").encode("utf-8", "replace")
    variants = [signed_text(ext)]
    if allows_added_zone and not ZONE_FIELDS.isdisjoint(ext):
        variants.append(signed_text(ext, without=ZONE_FIELDS))
    view = memoryview(body)
    for text in variants:
        mac = hmac.new(secret.encode(), text.encode("utf-8", "replace"), ALGORITHM)
        for at in range(0, len(body), STEP_BYTES):
            if at:
                yield
            mac.update(view[at : at + STEP_BYTES])
        if hmac.compare_digest(b64encode(mac.digest()), sent):
            return True
    return False


PAGE: Final = "docs/security.md"
VERDICT_LIFETIME_S: Final = 1.0
"""How long a verified signature of a lookup is remembered, since the identity may be revoked or expire."""
MAX_VERDICTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Rule:
    """What one request code needs."""

    role: Role
    """The lowest role that may send it, when it is guarded."""
    is_administrative: bool = False
    is_of_brokers: bool = False
    names_cluster: str = ""
    """The header field with the cluster; likewise the next two."""
    names_broker: str = ""
    names_topic: str = ""
    is_key_value: bool = False
    """The key is the name of a topic if its namespace has the order configuration."""


_KEY_VALUE: Final = Rule(Role.OPERATOR, is_administrative=True, is_key_value=True)
_READ: Final = Rule(Role.READ)
_OF_BROKERS: Final = Rule(Role.BROKER, is_of_brokers=True, names_cluster="clusterName", names_broker="brokerName")

RULES: Final[Mapping[int, Rule]] = {
    RequestCode.PUT_KV_CONFIG: _KEY_VALUE,
    RequestCode.GET_KV_CONFIG: _KEY_VALUE,
    RequestCode.DELETE_KV_CONFIG: _KEY_VALUE,
    RequestCode.REGISTER_BROKER: _OF_BROKERS,
    RequestCode.UNREGISTER_BROKER: _OF_BROKERS,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Rule(Role.READ, names_topic="topic"),
    RequestCode.GET_BROKER_CLUSTER_INFO: _READ,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: Rule(Role.OPERATOR, is_administrative=True, names_broker="brokerName"),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _READ,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: Rule(
        Role.OPERATOR, is_administrative=True, names_cluster="clusterName", names_topic="topic"
    ),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: Rule(Role.BROKER, is_of_brokers=True),
    RequestCode.GET_KVLIST_BY_NAMESPACE: _KEY_VALUE,
    RequestCode.GET_TOPICS_BY_CLUSTER: Rule(Role.READ, names_cluster="cluster"),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _READ,
    RequestCode.GET_UNIT_TOPIC_LIST: _READ,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _READ,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _READ,
    RequestCode.UPDATE_NAMESRV_CONFIG: Rule(Role.ADMIN, is_administrative=True),
    RequestCode.GET_NAMESRV_CONFIG: Rule(Role.OPERATOR),
    RequestCode.QUERY_DATA_VERSION: _OF_BROKERS,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: Rule(Role.OPERATOR, is_administrative=True, names_broker="brokerName"),
    RequestCode.GET_BROKER_MEMBER_GROUP: Rule(Role.READ, names_cluster="clusterName", names_broker="brokerName"),
    RequestCode.BROKER_HEARTBEAT: _OF_BROKERS,
}
"""The permission of every request code of this port."""
REGISTER_TOPIC: Final = RequestCode.REGISTER_TOPIC_IN_NAMESRV
LOOKUP_RULE: Final = RULES[RequestCode.GET_ROUTEINFO_BY_TOPIC]
ADMINISTRATIVE: Final = frozenset(code for code, rule in RULES.items() if rule.is_administrative)
OF_BROKERS: Final = frozenset(code for code, rule in RULES.items() if rule.is_of_brokers)


class SignInConnection(Protocol):
    """What a sign-in needs of a connection."""

    peer: str
    signed_in_as: str
    """The access key whose signature was verified on it last; empty at first."""

    @property
    def peer_costs(self) -> Peer: ...

    @property
    def certificate_names(self) -> Sequence[str]:
        """The names in the client's certificate; empty unless it was verified."""


@dataclass(frozen=True, slots=True)
class _Names:
    """What a request is about. None: it names nothing of this kind."""

    clusters: Collection[str] | None = None
    brokers: Collection[str] | None = None
    topics: Collection[str] | None = None


class Permissions:
    def __init__(self, registry: Registry, live: LiveSettings) -> None:
        self._registry = registry
        self._live = live
        self._admin_mode = "open"
        self.guards_lookups = False
        """Whether lookups have to be signed."""
        self._guarded: frozenset[int] = frozenset()
        self._verdicts: dict[LookupTemplate, set[tuple[str, bytes]]] = {}
        self._verdicts_end = 0.0
        self._verdicts_of: object = None
        live.subscribe(self._settings_changed)
        self._settings_changed(live.current)

    @property
    def is_open(self) -> bool:
        """Whether the port accepts all requests except brokers' own from every peer, as Apache's does."""
        return self._admin_mode == "open"

    def guards(self, code: int) -> bool:
        """Whether `identify` and `authorize` have to be called for this request."""
        return code in self._guarded or (code in OF_BROKERS and self._brokers_must_sign)

    @property
    def _brokers_must_sign(self) -> bool:
        return self.guards_lookups or self._registry.identities.has_brokers

    async def identify(self, context: RequestContext, connection: SignInConnection) -> RequestContext:
        """The context with the identity of the caller, if there is one. Raises ForbiddenError for a wrong signature."""
        ext = context.request.ext or {}
        found = self._signer(ext, connection)
        if found is None:
            identity = self._registry.identities.by_certificates(connection.certificate_names)
        else:
            identity, secret = found
            is_registration = context.request.code == RequestCode.REGISTER_BROKER
            steps = check_signature_in_steps(secret, ext, context.request.body, allows_added_zone=not is_registration)
            if not await self._registry.long_work.run(steps):
                raise self._failed_sign_in(connection)
            connection.signed_in_as = ext[ACCESS_KEY]
        if identity is None:
            return context
        return replace(context, caller=replace(context.caller, actor=identity.name, identity=identity))

    def authorize(self, context: RequestContext) -> None:
        """Raises ForbiddenError when the caller may not send this request."""
        request, rule = context.request, RULES[context.request.code]
        if rule.is_administrative and self._admin_mode == "off":
            raise ForbiddenError(
                f"{request_name(request.code)} is not allowed on this port (remoting_admin is off).",
                advice=f"Use HTTP, or set remoting_admin; see {PAGE}.",
            )
        if request.code == REGISTER_TOPIC and context.caller.identity is None and not self._brokers_must_sign:
            return  # `check_topic_registration` decides by the connection.
        self._check(request, rule, context.caller.identity)

    def check_topic_registration(self, context: RequestContext, topic: str, brokers: set[str]) -> None:
        """217: brokers send it for themselves, over the connection that they registered with."""
        if not self.guards(REGISTER_TOPIC):
            return
        identity, name = context.caller.identity, request_name(REGISTER_TOPIC)
        if identity is not None:
            _check_names(identity, _Names(self._clusters_of(brokers), brokers, {topic}), name)
        elif not brokers <= self._registry.sessions.broker_names_of(context.connection):
            raise ForbiddenError(
                f"{name} is allowed only over the connection of these brokers (setting remoting_admin).",
                advice=f"Use HTTP, or set remoting_admin to open; see {PAGE}.",
            )

    def protects_seats(self, context: RequestContext) -> bool:
        """Whether 104, 322 and 904 of this caller are refused for a broker that another connection carries. An identity
        needs no such protection: `authorize` has found that its policy covers the broker.
        """
        return not self.is_open and context.caller.identity is None

    # -- lookups

    def refuse_lookup(self, request: Request, connection: SignInConnection) -> Reply | None:
        """The reply to a caller that may not look up this topic, else None."""
        if not self.guards_lookups:
            return None
        try:
            self._check_lookup(request, connection)
        except ForbiddenError as error:
            registry = self._registry
            caller = anonymous_caller(request, connection.peer, registry.worker)
            registry.audit.refused(caller, what=object_of(request), reason=error.message)
            return reply_to_error(error)
        return None

    def _check_lookup(self, request: Request, connection: SignInConnection) -> None:
        ext = request.ext or {}
        found = self._signer(ext, connection)
        if found is None:
            identity = self._registry.identities.by_certificates(connection.certificate_names)
        else:
            identity, secret = found
            if not _is_signed(ext, request.body, secret):
                raise self._failed_sign_in(connection)
            connection.signed_in_as = ext[ACCESS_KEY]
        self._check(request, LOOKUP_RULE, identity)

    def usable_template(self, template: LookupTemplate | None, connection: SignInConnection) -> LookupTemplate | None:
        """The template, if lookups may be answered by it. Signatures of a key that has not signed in on this connection
        are checked by `refuse_lookup`, which limits failures.
        """
        if template is None or not self.guards_lookups:
            return template
        return template if (template.example.ext or {}).get(ACCESS_KEY) == connection.signed_in_as else None

    def verdicts(self, template: LookupTemplate) -> set[tuple[str, bytes]]:
        """Topic and signature of the lookups of this template that are known to be allowed.

        That is safe because the template, the topic and the signature determine all bytes of the request but the opaque
        number, which is not signed: another lookup with the same three has the same verdict. It holds for a second, or
        until an identity changes.
        """
        now = time.monotonic()
        identities = self._registry.replica.view.identities
        if now >= self._verdicts_end or identities is not self._verdicts_of:
            self._verdicts.clear()
            self._verdicts_end, self._verdicts_of = now + VERDICT_LIFETIME_S, identities
        return self._verdicts.setdefault(template, set())

    def allows_lookup(self, template: LookupTemplate, topic: str, signature: bytes) -> bool:
        """Checks a lookup that is not among the verdicts, and adds it to them. A refusal is left to `refuse_lookup`."""
        ext = {**(template.example.ext or {}), "topic": topic, SIGNATURE: signature.decode()}
        found = self._registry.identities.by_access_key(ext.get(ACCESS_KEY, ""))
        if found is None or not _is_signed(ext, b"", found[1]):
            return False
        try:
            self._check(template.example._replace(ext=ext), LOOKUP_RULE, found[0])
        except ForbiddenError:
            return False
        if sum(map(len, self._verdicts.values())) >= MAX_VERDICTS:
            self._verdicts.clear()
        self._verdicts.setdefault(template, set()).add((topic, signature))
        return True

    # -- the rules

    def _settings_changed(self, settings: Settings) -> None:
        by_address = "open" if settings.listens_on_loopback_only else "signed"
        self._admin_mode = settings.remoting_admin or by_address
        self.guards_lookups = settings.remoting_access == "signed"
        if self.guards_lookups:
            self._guarded = frozenset(RULES) - (ADMINISTRATIVE if self.is_open else frozenset())
        else:
            self._guarded = frozenset() if self.is_open else ADMINISTRATIVE | {REGISTER_TOPIC}

    def _signer(self, ext: Mapping[str, str], connection: SignInConnection) -> tuple[Identity, str] | None:
        """The identity that the request claims, with its secret. None if it is not signed. A client may have a key for
        brokers only; then its certificate decides.
        """
        if ACCESS_KEY not in ext or SIGNATURE not in ext:
            return None
        if ext[ACCESS_KEY] != connection.signed_in_as:
            self._check_sign_ins(connection)
        found = self._registry.identities.by_access_key(ext[ACCESS_KEY])
        if found is None and not connection.certificate_names:
            raise self._failed_sign_in(connection)
        return found

    def _check_sign_ins(self, connection: SignInConnection) -> None:
        """Not called for a key that has signed in on this connection: its neighbours must not disturb it."""
        wait_s = connection.peer_costs.sign_ins.wait_s(time.monotonic(), 1.0)
        if wait_s > 0:
            raise ForbiddenError(
                "Too many failed sign-ins from this address "
                f"(max_failed_sign_ins_per_minute_per_address is "
                f"{self._live.current.max_failed_sign_ins_per_minute_per_address}).",
                advice=f"Try again in {wait_s:.0f} s, with the right key.",
            )

    def _failed_sign_in(self, connection: SignInConnection) -> ForbiddenError:
        """The same for an unknown access key, so that the answer does not reveal which keys exist."""
        connection.peer_costs.sign_ins.charge(1.0, time.monotonic())
        return ForbiddenError(
            "The access key is unknown, or the signature is wrong.",
            advice="Compare accessKey and secretKey with the identity (`routebook token list`). Only HMAC-SHA1 is "
            f"understood; see {PAGE}.",
        )

    def _check(self, request: Request, rule: Rule, identity: Identity | None) -> None:
        name = request_name(request.code)
        if identity is None:
            setting = "remoting_admin" if rule.is_administrative else "remoting_access"
            instead = f"set {setting} to open"
            if rule.is_of_brokers and not self.guards_lookups:
                instead = "revoke all identities with the role broker"
            raise ForbiddenError(
                f"{name} must be signed by an identity with the role {rule.role.label} (setting {setting}).",
                advice=f"Give the peer an access key and a secret key, or {instead}; see {PAGE}.",
            )
        if identity.role < rule.role:
            raise ForbiddenError(
                f"Identity {identity.name} has the role {identity.role.label}, and {name} needs {rule.role.label}.",
                advice=f"Use the access key of another identity; see {PAGE}.",
            )
        if identity.is_limited and request.code != REGISTER_TOPIC:
            _check_names(identity, self._names(request, rule), name, is_strict=rule.is_administrative)

    def _names(self, request: Request, rule: Rule) -> _Names:
        """The clusters and brokers also come from the route table: a registration concerns the group that has the
        name, and the instance that has the address.
        """
        ext = request.ext
        clusters = _named(read_text(ext, rule.names_cluster))
        brokers = _named(read_text(ext, rule.names_broker))
        topics = _named(read_text(ext, rule.names_topic))
        if rule.is_key_value and read_text(ext, "namespace") == ORDER_TOPIC_NAMESPACE:
            topics = _named(read_text(ext, "key"))
        if rule.is_of_brokers and (address := read_text(ext, "brokerAddr")):
            instance = self._registry.replica.table.instances.get(
                join_instance_name(read_text(ext, "clusterName") or "", address)
            )
            if instance is not None:
                brokers.add(instance.broker)
        clusters |= self._clusters_of(brokers)
        return _Names(clusters or None, brokers or None, topics or None)

    def _clusters_of(self, brokers: set[str]) -> set[str]:
        """The clusters that list one of these groups."""
        clusters = self._registry.replica.table.clusters
        return {cluster for cluster, names in clusters.items() if not brokers.isdisjoint(names)}


def _named(name: str | None) -> set[str]:
    return {name} if name else set()


def _is_signed(ext: Mapping[str, str], body: bytes, secret: str) -> bool:
    """In one step: a lookup has no body, and one that is as large as a frame is no lookup."""
    try:
        next(check_signature_in_steps(secret, ext, body))
    except StopIteration as end:
        return bool(end.value)
    return False


def _check_names(identity: Identity, names: _Names, request: str, *, is_strict: bool = False) -> None:
    """Raises ForbiddenError when the policy does not cover a name. Strict: also when the request names nothing of a
    kind that the policy limits, because then it concerns everything of that kind.
    """
    for kind, prefixes, covers, named in (
        ("cluster", identity.clusters, identity.covers_cluster, names.clusters),
        ("broker", identity.brokers, identity.covers_broker, names.brokers),
        ("topic", identity.topics, identity.covers_topic, names.topics),
    ):
        outside = sorted(name for name in named or () if not covers(name))
        if outside or (is_strict and prefixes and named is None):
            what = f"{kind} {outside[0][:100]!r}" if outside else f"every {kind}"
            raise ForbiddenError(
                f"Identity {identity.name} does not cover {what}, which {request} concerns.",
                advice=f"Its policy is: {policy_text(identity)}; see {PAGE}.",
            )
