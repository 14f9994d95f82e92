"""How far the history in the lake goes."""

import time
from dataclasses import astuple

from routebook_pipeline.answers.windows import Reach
from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.lake.reading import complete_until
from routebook_pipeline.lake.tables import Lake, Pinned, Place
from routebook_pipeline.source.stream import StreamEnd, StreamReader


def reach_of(lake: Lake, url_env: str | None) -> Reach:
    """The store is asked after the lake was looked at: what it says then holds for what we have seen. Without a store
    (`url_env` none, or it does not answer) the history is complete to when the last batch was read.
    """
    pinned = lake.changes.pin()
    newest, why = _ask_store(url_env, lake.namespace)
    if newest is not None:
        why = _behind(pinned, newest)
    place = pinned.place
    first_ord = min((file.first_ord for file in pinned.files if file.first_ord is not None), default=None)
    return Reach(
        complete_until_ms=complete_until(lake, newest),
        now_ms=time.time_ns() // 1_000_000 if newest is None else newest.now_ms,
        since_ms=min((file.first_ms for file in pinned.files if file.first_ms is not None), default=None),
        newest=(0, 0) if place is None else astuple(place),
        first=Reach.first if first_ord is None else astuple(Place.of(first_ord)),
        store=why,
    )


def _ask_store(url_env: str | None, namespace: str) -> tuple[StreamEnd | None, str]:
    if url_env is None:
        return None, "no store was named, so it is not known whether there are later changes"
    try:
        with StreamReader(url_env, namespace) as stream:
            return stream.newest(), ""
    except UnreachableError:
        return None, "the store does not answer, so it is not known whether there are later changes"


def _behind(pinned: Pinned, newest: StreamEnd) -> str:
    version = 0 if pinned.place is None else pinned.place.version
    return "" if version == newest.version else f"the lake is at version {version}, the store at {newest.version}"
