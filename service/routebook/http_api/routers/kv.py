"""Name-space configuration: key-values in namespaces. Administrative, reading too: values may be secrets."""

from typing import Final

from fastapi import APIRouter

from routebook.http_api.callers import AdministratorOf
from routebook.http_api.dependencies import KvKey, KvNamespace, PageOf, RegistryOf, Seen
from routebook.http_api.openapi import ADMIN, BODY, INPUT, READ, STORE, answers_with, not_found
from routebook.http_api.schemas.table import KvGiven, KvShown, KvTable, Written

router = APIRouter(tags=["key-values"])

_KEY: Final = "/v1/kv/{namespace}/{key:path}"


@router.get(
    "/v1/kv/{namespace}",
    summary="List a namespace",
    responses=answers_with(*READ, *ADMIN, not_found("key-value-namespace")),
    dependencies=[Seen],
)
async def list_kv(namespace: KvNamespace, registry: RegistryOf, page: PageOf, caller: AdministratorOf) -> KvTable:
    """An emptied namespace is there still, with nothing in it."""
    del caller
    table = registry.kv(namespace)
    keys, next_cursor = page.of(table)
    return KvTable(namespace=namespace, table={key: table[key] for key in keys}, next_cursor=next_cursor)


@router.get(_KEY, summary="Read a value", responses=answers_with(*READ, *ADMIN, not_found("key")), dependencies=[Seen])
async def get_kv(namespace: KvNamespace, key: KvKey, registry: RegistryOf, caller: AdministratorOf) -> KvShown:
    """From memory, like all reads."""
    del caller
    return KvShown(namespace=namespace, key=key, value=registry.kv_value(namespace, key))


@router.put(_KEY, summary="Write a value", responses=answers_with(*BODY, *ADMIN, *STORE))
async def put_kv(
    namespace: KvNamespace, key: KvKey, given: KvGiven, registry: RegistryOf, caller: AdministratorOf
) -> Written:
    """`ORDER_TOPIC_CONFIG` is the one namespace that the name server itself reads: key = topic, value =
    `broker:queues;…`.
    """
    return Written(version=await registry.put_kv(namespace, key, given.value, caller))


@router.delete(_KEY, summary="Delete a value", responses=answers_with(*INPUT, *ADMIN, *STORE, not_found("key")))
async def delete_kv(namespace: KvNamespace, key: KvKey, registry: RegistryOf, caller: AdministratorOf) -> Written:
    """The namespace stays, even when it is empty then."""
    return Written(version=await registry.delete_kv(namespace, key, caller))
