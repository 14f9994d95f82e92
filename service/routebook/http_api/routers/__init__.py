"""One router a noun. Each reads its input, calls one verb of the registry, and shapes the answer."""

from typing import Final

from fastapi import APIRouter

from routebook.http_api import registration
from routebook.http_api.routers import (
    brokers,
    changes,
    clusters,
    expiry,
    kv,
    members,
    peers,
    reports,
    routes,
    settings,
    snapshot,
    status,
    topics,
    watch,
)

# In the order of the pages; within a router the more particular path stands first.
ALL_ROUTERS: Final[tuple[APIRouter, ...]] = (
    routes.router,
    watch.router,
    registration.router,
    members.router,
    brokers.router,
    topics.router,
    clusters.router,
    kv.router,
    status.router,
    changes.router,
    settings.router,
    snapshot.router,
    expiry.router,
    reports.router,
    peers.router,
)
