"""The path operations, one module per subject. Each reads its input, calls one verb of the registry, and shapes the
response.
"""

from typing import Final

from fastapi import APIRouter

from routebook.http_api import lookup, registration
from routebook.http_api.routers import fleet, history, operation, reports, snapshot

# In the order of the pages. Within a router, a fixed path comes before a pattern that also matches it.
ALL_ROUTERS: Final[tuple[APIRouter, ...]] = (
    lookup.router,
    history.router,
    registration.router,
    fleet.router,
    operation.router,
    snapshot.router,
    reports.router,
)
