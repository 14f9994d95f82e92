"""Topics as they are in the table; registering one without its broker's doing, and deleting one."""

from typing import Annotated

from fastapi import APIRouter, Query

from routebook.http_api.callers import AdministratorOf, CallerOf
from routebook.http_api.dependencies import TOPIC, OfCluster, PageOf, RegistryOf, Seen, TopicName
from routebook.http_api.openapi import ADMIN, BODY, INPUT, READ, STORE, WRITE, answers_with, not_found
from routebook.http_api.schemas.registration import TopicGiven
from routebook.http_api.schemas.table import Topic, Topics, Touched

router = APIRouter(tags=["topics"])


@router.get("/v1/topics", summary="List topics", responses=answers_with(*READ), dependencies=[Seen])
async def list_topics(registry: RegistryOf, page: PageOf, cluster: OfCluster = None) -> Topics:
    """By name. With `cluster`: those with an entry of any broker listed under it."""
    names, next_cursor = page.of(registry.topics(cluster))
    topics = [Topic.of(name, registry.find_topic(name).queues) for name in names]
    return Topics(topics=topics, next_cursor=next_cursor)


@router.get(TOPIC, summary="Show a topic", responses=answers_with(*READ, not_found("topic")), dependencies=[Seen])
async def show_topic(topic: TopicName, registry: RegistryOf) -> Topic:
    """Its queues, broker by broker."""
    return Topic.of(topic, registry.find_topic(topic).queues)


@router.put(TOPIC, summary="Register a topic", responses=answers_with(*BODY, *WRITE, not_found("broker")))
async def register_topic(topic: TopicName, given: TopicGiven, registry: RegistryOf, caller: CallerOf) -> Touched:
    """Puts queues of a topic on brokers that are registered already; the next changed registration of a
    broker overwrites them.
    """
    done = await registry.register_topic(topic, given.as_queues(), caller)
    return Touched(count=done.count, version=done.version)


@router.delete(TOPIC, summary="Delete a topic", responses=answers_with(*INPUT, *ADMIN, *STORE))
async def delete_topic(
    topic: TopicName,
    registry: RegistryOf,
    caller: AdministratorOf,
    cluster: Annotated[str | None, Query(description="Only from brokers listed under this cluster.")] = None,
) -> Touched:
    """It comes back with the next registration that names it: delete it on the brokers first."""
    done = await registry.delete_topic(topic, cluster, caller)
    return Touched(count=done.count, version=done.version)
