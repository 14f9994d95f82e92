"""Operating the service: status, settings, held expiry, key-values, readers, identities, and addresses for peers."""

import re
from typing import Annotated, Any, Final, Self

from fastapi import APIRouter, Path, Request
from fastapi.responses import PlainTextResponse
from pydantic import ConfigDict, Field

from routebook.errors import InvalidInputError
from routebook.http_api import problems
from routebook.http_api.callers import AdminDep, KvOperatorDep, OperatorDep
from routebook.http_api.dependencies import (
    WAIT_FOR_MIN_VERSION,
    DryRunFlag,
    KvKey,
    KvNamespace,
    LiveSettingsDep,
    PageDep,
    RegistryDep,
)
from routebook.http_api.openapi import ADMIN, BODY, INPUT, READ, STORE, not_found, problem_responses
from routebook.http_api.schemas import (
    DryRunResult,
    ExpiryResult,
    KvInput,
    KvNamespaceResult,
    KvNamespaces,
    KvTable,
    KvValue,
    Reader,
    Readers,
    RequestBody,
    ResponseBody,
    Setting,
    SettingInput,
    Settings,
    StatusResult,
    Version,
    WriteResult,
)
from routebook.model.identity import Credentials, Identity, IdentityRecord, Role
from routebook.registry.dry_runs import (
    plan_expiry_release,
    plan_identity_revocation,
    plan_key_value,
    plan_reader_removal,
    plan_setting,
)
from routebook.registry.identities import MAX_VALID_MS, NewCredentials

router = APIRouter()

# -- status and settings


@router.get(
    "/v1/status",
    tags=["operation"],
    summary="Show the status",
    responses=problem_responses(*READ),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def show_status(registry: RegistryDep) -> StatusResult:
    """Version and digest of the table, age of the last contact with the store, leader, workers.

    Without the store, the answer contains only what this worker has in memory.
    """
    return StatusResult.of(await registry.status())


@router.get(
    "/v1/settings",
    tags=["operation"],
    summary="Show the settings",
    responses=problem_responses(*READ, *ADMIN),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def list_settings(live_settings: LiveSettingsDep, caller: AdminDep) -> Settings:
    """The settings in force on this worker, each with its origin. Secrets are masked."""
    del caller
    rows = live_settings.describe()
    return Settings(settings=[Setting(key=key, value=value, origin=origin) for key, value, origin in rows])


@router.put(
    "/v1/settings/{key}",
    tags=["operation"],
    summary="Change a setting",
    responses=problem_responses(*BODY, *ADMIN, *STORE),
)
async def change_setting(
    key: Annotated[str, Path(description="A setting that can be changed at run time.", examples=["hold_percent"])],
    body: SettingInput,
    registry: RegistryDep,
    caller: AdminDep,
    dry_run: DryRunFlag = False,
) -> WriteResult | DryRunResult:
    """The value is stored, reaches all workers within a second, and survives restarts. On a worker that has the setting
    as a flag or environment variable, that value stays in force.
    """
    if dry_run:
        return DryRunResult.of(plan_setting(registry, key, body.text))
    return WriteResult(version=await registry.change_setting(key, body.text, caller))


@router.delete(
    "/v1/settings/{key}",
    tags=["operation"],
    summary="Reset a setting",
    responses=problem_responses(*INPUT, *ADMIN, *STORE, not_found("run-time-setting")),
)
async def reset_setting(
    key: Annotated[str, Path(description="A setting that was changed at run time.", examples=["hold_percent"])],
    registry: RegistryDep,
    caller: AdminDep,
    dry_run: DryRunFlag = False,
) -> WriteResult | DryRunResult:
    """Within a second, the value of the file or the default is in force again on all workers."""
    if dry_run:
        return DryRunResult.of(plan_setting(registry, key, None))
    return WriteResult(version=await registry.reset_setting(key, caller))


# -- held expiry


@router.get(
    "/v1/expiry",
    tags=["operation"],
    summary="Show the expiry",
    responses=problem_responses(*READ, *STORE),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def show_expiry(registry: RegistryDep) -> ExpiryResult:
    """Whether removals are on hold because too many brokers would be removed at once, and which those are."""
    return ExpiryResult.of(await registry.expiry_state())


@router.post(
    "/v1/expiry/release",
    tags=["operation"],
    summary="Release a held expiry",
    responses=problem_responses(*INPUT, *ADMIN, *STORE),
)
async def release_expiry(
    registry: RegistryDep, caller: OperatorDep, dry_run: DryRunFlag = False
) -> ExpiryResult | DryRunResult:
    """Confirms that the brokers really are gone: the next scan removes those whose removal is held and that have sent
    no heartbeat since. When nothing is on hold, it changes nothing.
    """
    if dry_run:
        return DryRunResult.of(await plan_expiry_release(registry))
    return ExpiryResult.of(await registry.release_expiry(caller))


# -- key-values; reading is administrative too, since values may be secrets

_KEY_PATH: Final = "/v1/kv/{namespace}/{key:path}"


@router.get(
    "/v1/kv",
    tags=["key-values"],
    summary="List the key-value namespaces",
    responses=problem_responses(*READ, *ADMIN),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def list_kv_namespaces(registry: RegistryDep, page: PageDep, caller: OperatorDep) -> KvNamespaces:
    """Their names and numbers of keys. A namespace remains when its last key is deleted."""
    del caller
    kv = registry.view.kv
    names, next_cursor = page.of(kv)
    namespaces = [KvNamespaceResult(namespace=name, keys=len(kv[name])) for name in names]
    return KvNamespaces(namespaces=namespaces, next_cursor=next_cursor)


@router.get(
    "/v1/kv/{namespace}",
    tags=["key-values"],
    summary="List a key-value namespace",
    responses=problem_responses(*READ, *ADMIN, not_found("key-value-namespace")),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def list_kv(namespace: KvNamespace, registry: RegistryDep, page: PageDep, caller: OperatorDep) -> KvTable:
    """A namespace whose keys were all deleted still exists, with an empty table."""
    del caller
    table = registry.kv(namespace)
    keys, next_cursor = page.of(table)
    return KvTable(namespace=namespace, table={key: table[key] for key in keys}, next_cursor=next_cursor)


@router.get(
    _KEY_PATH,
    tags=["key-values"],
    summary="Read a value",
    responses=problem_responses(*READ, *ADMIN, not_found("key")),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def get_kv(namespace: KvNamespace, key: KvKey, registry: RegistryDep, caller: KvOperatorDep) -> KvValue:
    """Answered from memory, like all reads."""
    del caller
    return KvValue(namespace=namespace, key=key, value=registry.kv_value(namespace, key))


@router.put(_KEY_PATH, tags=["key-values"], summary="Write a value", responses=problem_responses(*BODY, *ADMIN, *STORE))
async def put_kv(
    *,
    namespace: KvNamespace,
    key: KvKey,
    body: KvInput,
    registry: RegistryDep,
    caller: KvOperatorDep,
    dry_run: DryRunFlag = False,
) -> WriteResult | DryRunResult:
    """The name server itself reads only the namespace `ORDER_TOPIC_CONFIG`: the key is a topic, the value
    `broker:queues;…`.
    """
    if dry_run:
        return DryRunResult.of(plan_key_value(registry, namespace, key, body.value))
    return WriteResult(version=await registry.put_kv(namespace, key, body.value, caller))


@router.delete(
    _KEY_PATH,
    tags=["key-values"],
    summary="Delete a value",
    responses=problem_responses(*INPUT, *ADMIN, *STORE, not_found("key")),
)
async def delete_kv(
    namespace: KvNamespace, key: KvKey, registry: RegistryDep, caller: KvOperatorDep, dry_run: DryRunFlag = False
) -> WriteResult | DryRunResult:
    """The namespace remains, even when this was its last key."""
    if dry_run:
        return DryRunResult.of(plan_key_value(registry, namespace, key, None))
    return WriteResult(version=await registry.delete_kv(namespace, key, caller))


# -- readers of the history


@router.get(
    "/v1/readers",
    tags=["operation"],
    summary="List the readers of the history",
    responses=problem_responses(*READ, *STORE),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def list_readers(registry: RegistryDep) -> Readers:
    """Programs, such as the pipeline, for which the store keeps changes until they have consumed them."""
    found = await registry.readers()
    return Readers(readers=[Reader(reader=one.name, version=one.version, seen_ms=one.seen_ms) for one in found])


@router.delete(
    "/v1/readers/{name}",
    tags=["operation"],
    summary="Forget a reader of the history",
    responses=problem_responses(*INPUT, *ADMIN, *STORE, not_found("reader")),
)
async def forget_reader(
    name: Annotated[str, Path(description="A reader.", examples=["pipeline"])],
    registry: RegistryDep,
    caller: OperatorDep,
    dry_run: DryRunFlag = False,
) -> WriteResult | DryRunResult:
    """For a reader that no longer exists: the store keeps no more changes for it. One that still runs appears again."""
    del caller
    if dry_run:
        return DryRunResult.of(await plan_reader_removal(registry, name))
    await registry.forget_reader(name)
    return WriteResult(version=registry.replica.version)


# -- addresses for RocketMQ peers, which poll them by HTTP (`rocketmq.namesrv.domain`)

_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]+)?")
_EXAMPLE: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"text/plain": {"example": "127.0.0.1:9876"}}}}


@router.get(
    "/rocketmq/nsaddr",
    tags=["peers"],
    summary="Name-server addresses",
    response_class=PlainTextResponse,
    responses=_EXAMPLE,
)
async def list_name_servers(request: Request, live_settings: LiveSettingsDep) -> str:
    """`host:port;host:port`: the advertised addresses, or else the host of this request with the remoting port."""
    settings = live_settings.current
    return settings.advertised_addresses or f"{_host_of(request)}:{settings.remoting_port}"


@router.get(
    "/rocketmq/{group}-{unit}",
    tags=["peers"],
    summary="Name-server addresses for a unit",
    response_class=PlainTextResponse,
    responses=_EXAMPLE | problem_responses(*INPUT),
)
async def list_name_servers_of_unit(group: str, unit: str, request: Request, live_settings: LiveSettingsDep) -> str:
    """The same list: all units share one name service."""
    del group, unit
    return await list_name_servers(request, live_settings)


def _host_of(request: Request) -> str:
    """The host in the request's `Host` header, since the peer can reach it; with an invalid header, the address that
    accepted the connection.
    """
    found = _HOST.fullmatch(request.headers.get("host", ""))
    if found:
        return found["host"]
    host = str((request.scope.get("server") or ("127.0.0.1", 0))[0])
    return f"[{host}]" if ":" in host else host


# -- identities; only the answer to a creation contains credentials

_IDENTITIES: Final = "/v1/identities"
_ROLE = Field(
    description="read, broker, operator or admin; each includes the permissions of those before it.",
    examples=["operator"],
)
_PREFIXES = "An empty list covers all."


class IdentityInput(RequestBody):
    """A new identity. Its policy lists prefixes of names."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ci", "role": "operator", "topics": ["ci-"]}]})

    name: str = Field(description="1 to 64 of A-Z a-z 0-9 . _ -", examples=["ci"])
    role: str = _ROLE
    clusters: list[str] = Field(default_factory=list, description=f"Prefixes of cluster names. {_PREFIXES}")
    topics: list[str] = Field(default_factory=list, description=f"Prefixes of topics. {_PREFIXES}")
    brokers: list[str] = Field(default_factory=list, description=f"Prefixes of broker names. {_PREFIXES}")
    valid_for_ms: int | None = Field(None, ge=1, le=MAX_VALID_MS, description="Null = it does not expire.")
    access_key: str = Field("", description="Access key of RocketMQ's signatures, if it is to sign.")
    secret: str = Field("", description="Secret of RocketMQ's signatures. Empty with an access key = one is made.")
    certificate: str = Field("", description="A name in the client's certificate, if it is to use one.")
    replace: bool = Field(False, description="Replace an identity of that name, with all its credentials.")

    def as_identity(self) -> Identity:
        return Identity(self.name, Role.parse(self.role), tuple(self.clusters), tuple(self.topics), tuple(self.brokers))


class IdentityResult(ResponseBody):
    """An identity without its credentials."""

    name: str = Field(examples=["ci"])
    role: str = _ROLE
    clusters: list[str]
    topics: list[str]
    brokers: list[str]
    has_token: bool
    access_key: str | None = Field(examples=[None])
    certificate: str | None = Field(examples=[None])
    created_ms: int = Field(description="Time on the store's clock.", examples=[1763475600000])
    changed_ms: int = Field(examples=[1763475600000])
    expires_ms: int | None = Field(description="Null = never.", examples=[None])

    @classmethod
    def of(cls, record: IdentityRecord) -> Self:
        identity, credentials = record.identity, record.credentials
        return cls(
            name=identity.name,
            role=identity.role.label,
            clusters=list(identity.clusters),
            topics=list(identity.topics),
            brokers=list(identity.brokers),
            has_token=bool(credentials.token_sha256),
            access_key=credentials.access_key or None,
            certificate=credentials.certificate or None,
            created_ms=record.created_ms,
            changed_ms=record.changed_ms,
            expires_ms=record.expires_ms or None,
        )


class IdentityList(ResponseBody):
    identities: list[IdentityResult] = Field(description="Sorted by name.")


class CreatedIdentity(ResponseBody):
    """The credentials of a new identity. They are shown only here: the store has no more than a hash of the token."""

    name: str = Field(examples=["ci"])
    token: str = Field(examples=["rb_…"])
    access_key: str | None = Field(examples=[None])
    secret: str | None = Field(examples=[None])
    version: Version

    @classmethod
    def of(cls, name: str, created: NewCredentials) -> Self:
        return cls(
            name=name,
            token=created.token,
            access_key=created.access_key or None,
            secret=created.secret or None,
            version=created.version,
        )


@router.get(
    _IDENTITIES,
    tags=["operation"],
    summary="List identities",
    responses=problem_responses(*READ, *ADMIN),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def list_identities(registry: RegistryDep, caller: AdminDep) -> IdentityList:
    """Names, roles and policies, without credentials. There are at most 1,000, so the list has no pages."""
    del caller
    return IdentityList(identities=[IdentityResult.of(record) for record in registry.identities.all()])


@router.post(
    _IDENTITIES,
    tags=["operation"],
    summary="Create an identity",
    responses=problem_responses(*BODY, *ADMIN, *STORE, problems.CONFLICT),
)
async def create_identity(body: IdentityInput, registry: RegistryDep, caller: AdminDep) -> CreatedIdentity:
    """The answer contains its token, and never again. It is valid on all workers within a second.

    The first identity with the role `broker` makes registrations and heartbeats demand such an identity.
    """
    if body.secret and not body.access_key:
        raise InvalidInputError("access_key", body.access_key, "an access key together with the secret")
    created = await registry.identities.create(
        body.as_identity(),
        caller,
        credentials=Credentials(access_key=body.access_key, secret=body.secret, certificate=body.certificate),
        valid_for_ms=body.valid_for_ms or 0,
        replaces=body.replace,
    )
    return CreatedIdentity.of(body.name, created)


@router.delete(
    _IDENTITIES + "/{name}",
    tags=["operation"],
    summary="Revoke an identity",
    responses=problem_responses(*INPUT, *ADMIN, *STORE, not_found("identity")),
)
async def revoke_identity(
    name: Annotated[str, Path(description="Name of an identity.", examples=["ci"])],
    registry: RegistryDep,
    caller: AdminDep,
    dry_run: DryRunFlag = False,
) -> WriteResult | DryRunResult:
    """Its credentials are refused on all workers within a second. Requests that are being answered continue."""
    if dry_run:
        return DryRunResult.of(plan_identity_revocation(registry, name))
    return WriteResult(version=await registry.identities.revoke(name, caller))
