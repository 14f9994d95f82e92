"""The fleet in the route table: broker groups, topics and clusters, and the changes that operators make to them."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query

from routebook.http_api.callers import GroupOperatorDep, TopicBrokerDep, TopicOperatorDep, check_groups
from routebook.http_api.dependencies import (
    TOPIC_PATH,
    WAIT_FOR_MIN_VERSION,
    BrokerName,
    ClusterFilter,
    ClusterName,
    DryRunFlag,
    PageDep,
    RegistryDep,
    TopicName,
)
from routebook.http_api.openapi import ADMIN, BODY, INPUT, READ, STORE, WRITE, not_found, problem_responses
from routebook.http_api.registration import TopicInput
from routebook.http_api.schemas import (
    Broker,
    Brokers,
    Cluster,
    Clusters,
    DryRunResult,
    Topic,
    Topics,
    TopicWriteResult,
    WritePermissionInput,
)
from routebook.registry.dry_runs import plan_topic_deletion, plan_write_permission

router = APIRouter()

# -- broker groups


@router.get(
    "/v1/brokers",
    tags=["brokers"],
    summary="List broker groups",
    responses=problem_responses(*READ),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def list_brokers(registry: RegistryDep, page: PageDep, cluster: ClusterFilter = None) -> Brokers:
    """Broker groups, sorted by name, with the heartbeats and connections of their brokers. With `cluster`, only those
    listed under it.

    Heartbeats and connections come from the store; without it they are null, and the rest is answered from memory.
    """
    names, next_cursor = page.of(registry.brokers(cluster))
    views = []
    for name in names:
        # A group with many topics takes a millisecond, and lookups must not wait for a whole page of them.
        await asyncio.sleep(0)
        if (view := registry.find_broker(name)) is not None:
            views.append(view)
    presences = await registry.presences(views)
    return Brokers(brokers=[Broker.of(view, presences) for view in views], next_cursor=next_cursor)


@router.get(
    "/v1/brokers/{name}",
    tags=["brokers"],
    summary="Show a broker group",
    responses=problem_responses(*READ, not_found("broker")),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def show_broker(name: BrokerName, registry: RegistryDep) -> Broker:
    """All seats of the group, each with what its last registration contained, its heartbeats and its connection."""
    view = registry.broker(name)
    return Broker.of(view, await registry.presences([view]))


@router.put(
    "/v1/brokers/{name}/write-permission",
    tags=["brokers"],
    summary="Allow or forbid writing to a broker group",
    responses=problem_responses(*BODY, *ADMIN, *STORE),
)
async def set_write_permission(
    name: BrokerName,
    body: WritePermissionInput,
    registry: RegistryDep,
    caller: GroupOperatorDep,
    dry_run: DryRunFlag = False,
) -> TopicWriteResult | DryRunResult:
    """For maintenance: producers use other brokers while consumers continue to read. A registration with a new data
    version overwrites it.
    """
    if dry_run:
        return DryRunResult.of(plan_write_permission(registry, name, body.writable))
    result = await registry.set_write_permission(name, body.writable, caller)
    return TopicWriteResult(count=result.count, version=result.version)


# -- topics


@router.get(
    "/v1/topics",
    tags=["topics"],
    summary="List topics",
    responses=problem_responses(*READ),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def list_topics(
    registry: RegistryDep,
    page: PageDep,
    cluster: ClusterFilter = None,
    broker: Annotated[str | None, Query(description="Only topics of this broker group.", examples=["broker-a"])] = None,
) -> Topics:
    """Topics, sorted by name. With `cluster`, only those on a broker group listed under it; with `broker`, only those
    of that group.
    """
    names, next_cursor = page.of(registry.topics(cluster, broker))
    topics = [Topic.of(name, registry.find_topic(name).queues) for name in names]
    return Topics(topics=topics, next_cursor=next_cursor)


@router.get(
    TOPIC_PATH,
    tags=["topics"],
    summary="Show a topic",
    responses=problem_responses(*READ, not_found("topic")),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def show_topic(topic: TopicName, registry: RegistryDep) -> Topic:
    """The topic's queues on each broker group."""
    return Topic.of(topic, registry.find_topic(topic).queues)


@router.put(
    TOPIC_PATH,
    tags=["topics"],
    summary="Register a topic",
    responses=problem_responses(*BODY, *WRITE, not_found("broker")),
)
async def register_topic(
    topic: TopicName, body: TopicInput, registry: RegistryDep, caller: TopicBrokerDep
) -> TopicWriteResult:
    """Adds queues of a topic to broker groups that are registered already. The next changed registration of a broker
    overwrites them.
    """
    queues = body.as_queues()
    check_groups(caller, registry, list(queues))
    result = await registry.register_topic(topic, queues, caller)
    return TopicWriteResult(count=result.count, version=result.version)


@router.delete(
    TOPIC_PATH,
    tags=["topics"],
    summary="Delete a topic",
    responses=problem_responses(*INPUT, *ADMIN, *STORE),
)
async def delete_topic(
    topic: TopicName,
    registry: RegistryDep,
    caller: TopicOperatorDep,
    cluster: Annotated[str | None, Query(description="Delete it only from brokers listed under this cluster.")] = None,
    dry_run: DryRunFlag = False,
) -> TopicWriteResult | DryRunResult:
    """The topic returns with the next registration that contains it, so delete it on the brokers first."""
    if dry_run:
        return DryRunResult.of(plan_topic_deletion(registry, topic, cluster))
    result = await registry.delete_topic(topic, cluster, caller)
    return TopicWriteResult(count=result.count, version=result.version)


# -- clusters


@router.get(
    "/v1/clusters",
    tags=["clusters"],
    summary="List clusters",
    responses=problem_responses(*READ),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def list_clusters(registry: RegistryDep, page: PageDep, cluster: ClusterFilter = None) -> Clusters:
    """Clusters, sorted by name."""
    views = {view.name: view for view in registry.clusters() if cluster in {None, view.name}}
    names, next_cursor = page.of(views)
    return Clusters(clusters=[Cluster.of(views[name]) for name in names], next_cursor=next_cursor)


@router.get(
    "/v1/clusters/{name}",
    tags=["clusters"],
    summary="Show a cluster",
    responses=problem_responses(*READ, not_found("cluster")),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def show_cluster(name: ClusterName, registry: RegistryDep) -> Cluster:
    """The broker groups listed under a cluster. A group can be listed under several clusters."""
    return Cluster.of(registry.cluster(name))
