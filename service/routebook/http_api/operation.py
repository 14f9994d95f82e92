"""Operating the service: status, settings, held expiry, key-values, and the address list that RocketMQ peers poll."""

import re
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from fastapi.responses import PlainTextResponse

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
    Setting,
    SettingInput,
    Settings,
    StatusResult,
    WriteResult,
)
from routebook.registry.dry_runs import (
    plan_expiry_release,
    plan_key_value,
    plan_reader_removal,
    plan_setting,
)

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
