"""Writes the refusals of this worker into the store, once a second and a limited number of them."""

import asyncio
import logging
from typing import Final

from routebook.errors import StoreError
from routebook.observability.audit import Audit
from routebook.store.namespace import Namespace
from routebook.store.refusals import append_refusals

_log = logging.getLogger(__name__)

PERIOD_S: Final = 1.0


async def write_refusals(namespace: Namespace, audit: Audit) -> None:
    """Without the store they are dropped: the log has them, and they must not gather in memory."""
    refusals = audit.take_refusals()
    if not refusals:
        return
    try:
        await append_refusals(namespace, refusals)
    except StoreError as error:
        _log.debug("%d refusals could not be written into the store: %s", len(refusals), error)


async def write_refusals_forever(namespace: Namespace, audit: Audit) -> None:
    while True:
        await asyncio.sleep(PERIOD_S)
        await write_refusals(namespace, audit)
