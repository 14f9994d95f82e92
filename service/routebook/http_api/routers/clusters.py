"""Clusters: names and the brokers listed under them."""

from fastapi import APIRouter

from routebook.http_api.dependencies import ClusterName, OfCluster, PageOf, RegistryOf, Seen
from routebook.http_api.openapi import READ, answers_with, not_found
from routebook.http_api.schemas.table import Cluster, Clusters

router = APIRouter(tags=["clusters"])


@router.get("/v1/clusters", summary="List clusters", responses=answers_with(*READ), dependencies=[Seen])
async def list_clusters(registry: RegistryOf, page: PageOf, cluster: OfCluster = None) -> Clusters:
    """By name."""
    views = {view.name: view for view in registry.clusters() if cluster in {None, view.name}}
    names, next_cursor = page.of(views)
    return Clusters(clusters=[Cluster.of(views[name]) for name in names], next_cursor=next_cursor)


@router.get(
    "/v1/clusters/{name}",
    summary="Show a cluster",
    responses=answers_with(*READ, not_found("cluster")),
    dependencies=[Seen],
)
async def show_cluster(name: ClusterName, registry: RegistryOf) -> Cluster:
    """The names listed under it; one may be listed under several clusters."""
    return Cluster.of(registry.cluster(name))
