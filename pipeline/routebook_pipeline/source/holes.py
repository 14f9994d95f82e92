"""Rows in the place of missing versions: made by the reader, understood by whoever parses entries."""

import json
from typing import Final

from routebook_pipeline.source.positions import EntryId

HOLE_PREFIX: Final = "hole:"
"""Of the entry_id of such a row. An entry of the stream cannot have such an id, whatever its payload claims."""


def hole_row(place: EntryId, last: int) -> tuple[str, bytes]:
    """For the versions behind `place` up to `last`."""
    first = place.version + 1
    payload = {"v": 1, "kind": "hole", "from_version": first, "to_version": last}
    return f"{HOLE_PREFIX}{EntryId(place.ms, first)}", json.dumps(payload, separators=(",", ":")).encode()
