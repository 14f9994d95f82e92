"""Which entries Arrow decodes, and that one that it does not decode leaves the others in their places."""

import json
from typing import Any

import pytest

from routebook_pipeline.source.decoding import CHANGE_FORMAT, SMALLEST_BLOCK, decode

GROUP = {"v": 1, "kind": "group-changed", "cluster": "c", "broker": "b"}
QUEUES = {**GROUP, "kind": "queues-changed"}
QUEUE = {"t": "T", "r": 4, "w": 8, "p": 6, "f": 0}


def payload(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def is_decoded(entry: bytes) -> bool:
    (kept,), (fields,) = (column.to_pylist() for column in decode([entry], CHANGE_FORMAT))
    assert (kept, fields is None) in ((None, False), (entry, True))
    return fields is not None


@pytest.mark.parametrize(
    "entry",
    [
        payload(GROUP),
        payload({**GROUP, "zone": "Ü \u2028", "new": {"nested": [1, {"kind": 5}]}}),
        json.dumps({**GROUP, "zone": "Ü \U0001f600"}, ensure_ascii=False).encode(),
        payload({**QUEUES, "queues": []}),
        payload({**QUEUES, "queues": [QUEUE, {"t": "gone", "x": 1}]}),
        payload({"v": 0, "kind": "baseline-begin", "queues": None}),
    ],
)
def test_a_readable_entry_is_decoded(entry: bytes) -> None:
    assert is_decoded(entry)


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b" ",
        b"5",
        b"null",
        b"[]",
        b"{",
        b"{}",
        b" " + payload(GROUP),
        payload(GROUP) + payload(GROUP),
        payload(GROUP) + b"\n" + payload(GROUP),
        payload(GROUP).replace(b" ", b"\n"),
        payload(GROUP).replace(b" ", b"\r"),
        payload(GROUP)[:-1] + b', "kind": "baseline-begin"}',
        payload({**GROUP, "zone": "?"}).replace(b"?", b"\xc3"),
        payload({**GROUP, "zone": "\U0001f600"}),
        payload({**GROUP, "zone": "?"}).replace(b"?", b"\\ud800"),
        payload({**GROUP, "zone": "?"}).replace(b"?", b"\x01"),
        payload({**GROUP, "v": None}),
        payload({**GROUP, "v": 2}),
        payload({**GROUP, "v": 1.0}),
        payload({**GROUP, "v": "1"}),
        payload({**GROUP, "kind": "of-a-newer-service"}),
        payload({**GROUP, "kind": None}),
        payload({**GROUP, "broker": None}),
        payload({**GROUP, "broker": 5}),
        payload({**GROUP, "acting": "true"}),
        payload({**GROUP, "perm": 1 << 31}),
        payload({**GROUP, "lost_ms": 1 << 63}),
        payload(QUEUES),
        payload({**QUEUES, "queues": [None]}),
        payload({**QUEUES, "queues": [QUEUE, {**QUEUE, "t": None}]}),
        payload({**QUEUES, "queues": [QUEUE, {**QUEUE, "r": None}]}),
        payload({**QUEUES, "queues": [{**QUEUE, "r": None, "x": 0}]}),
        payload({**QUEUES, "queues": QUEUE}),
    ],
)
def test_an_entry_that_may_be_unreadable_keeps_its_payload(entry: bytes) -> None:
    assert not is_decoded(entry)


def test_an_undecoded_entry_leaves_the_others_in_their_places() -> None:
    """One entry fails its whole block, another only itself. Every other entry has its own values."""
    entries = [payload({**QUEUES, "id": at, "queues": [{**QUEUE, "w": at}]}) for at in range(4 * SMALLEST_BLOCK)]
    entries[5], entries[-1] = b"{", payload({**QUEUES, "queues": [{"t": "T"}]})
    kept, decoded = (column.to_pylist() for column in decode(entries, CHANGE_FORMAT))
    assert [at for at, fields in enumerate(decoded) if fields is None] == [*range(SMALLEST_BLOCK), len(entries) - 1]
    for at, (one, fields) in enumerate(zip(kept, decoded, strict=True)):
        assert (one is None) == (fields is not None)
        if fields is None:
            assert one == entries[at]
        else:
            assert (fields["id"], fields["queues"][0]["w"]) == (at, at)


def test_no_entries_are_no_rows() -> None:
    assert [len(column) for column in decode([], CHANGE_FORMAT)] == [0, 0]
