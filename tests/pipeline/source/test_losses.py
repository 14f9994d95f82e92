"""No missing entry goes unnoticed: an entry that the reader expected and did not find is an error, or a hole row.

Each case is read as a batch and as a stream, in one partition and in several. The tests call the readers as Spark does.
"""

import json
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from routebook_pipeline.errors import HistoryForkError, HistoryMissingError
from routebook_pipeline.source.data_source import StreamRange
from routebook_pipeline.source.reading import HOLE_PREFIX
from routebook_pipeline.source.stream import BEGINNING, EntryId, key_of
from tests.pipeline.source.streams import BEGAN_MS, Rows, Stream, payload_of, read_all

LAST = 100
Partition = pytest.mark.parametrize("each", ["7", "1000"], ids=["split", "whole"])


def as_batch(stream: Stream, start: EntryId, end: EntryId, **more: str) -> Rows:
    reader = stream.batch_reader(start_id=str(start), end_id=str(end), **more)
    return read_all(reader, reader.partitions())


def as_stream(stream: Stream, start: EntryId, end: EntryId, **more: str) -> Rows:
    """A batch of a query whose checkpoint is at `start`."""
    reader = stream.stream_reader(**more)
    try:
        limit = reader.getDefaultReadLimit()
        latest = reader.latestOffset(stream.offset(start), limit)
        assert latest == stream.offset(end)
        return read_all(reader, reader.partitions(stream.offset(start), latest))
    finally:
        reader.stop()


Read = Callable[..., Rows]
BatchAndStream = pytest.mark.parametrize("read", [as_batch, as_stream])

Damage = Callable[[Stream, list[EntryId]], object]
READ_UNTIL = 20
"""The version up to which the reader has everything."""

LOSSES: dict[str, tuple[Damage, list[tuple[int, int]]]] = {
    "trimmed one beyond our position": (lambda s, ids: s.trim_below(ids[21]), [(21, 21)]),
    "trimmed far beyond our position": (lambda s, ids: s.trim_below(ids[89]), [(21, 89)]),
    "first one deleted": (lambda s, ids: s.delete(ids[20]), [(21, 21)]),
    "one in the middle deleted": (lambda s, ids: s.delete(ids[49]), [(50, 50)]),
    "several in the middle deleted": (lambda s, ids: s.delete(*ids[30:40], ids[60]), [(31, 40), (61, 61)]),
    "last one deleted": (lambda s, ids: s.delete(ids[99]), [(100, 100)]),
    "all but one deleted": (lambda s, ids: s.delete(*ids[:70], *ids[71:]), [(21, 70), (72, 100)]),
    "everything trimmed": (lambda s, ids: s.trim_below(EntryId(BEGAN_MS * 2, 0)), [(21, 100)]),
}
Losses = pytest.mark.parametrize(("damage", "holes"), LOSSES.values(), ids=LOSSES)


@Losses
@Partition
@BatchAndStream
def test_a_recorded_loss_becomes_a_hole_row(
    stream: Stream, read: Read, each: str, damage: Damage, holes: list[tuple[int, int]]
) -> None:
    ids = stream.fill(LAST)
    damage(stream, ids)
    rows = read(stream, ids[READ_UNTIL - 1], ids[-1], on_loss="record", entries_per_partition=each, chunk="9")
    # A hole that spans two partitions may become two rows; no version is in both.
    assert rows.all_versions == list(range(READ_UNTIL + 1, LAST + 1))
    missing = {version for first, last in holes for version in range(first, last + 1)}
    assert set(rows.versions) == set(range(READ_UNTIL + 1, LAST + 1)) - missing
    if each == "1000":
        assert rows.holes == holes


@pytest.mark.parametrize("on_loss", ["fail", "record"])
def test_a_recorded_loss_requests_a_baseline(stream: Stream, on_loss: str) -> None:
    ids, meta = stream.fill(LAST), key_of(stream.namespace, "meta")
    stream.client.delete(meta)
    as_batch(stream, BEGINNING, ids[-1], on_loss=on_loss)
    assert stream.client.hget(meta, "baseline_requested") is None, "nothing was lost"
    stream.client.xtrim(stream.key, minid=str(ids[20]), approximate=False)
    with nullcontext() if on_loss == "record" else pytest.raises(HistoryMissingError):
        as_batch(stream, BEGINNING, ids[-1], on_loss=on_loss)
    request = stream.client.hget(meta, "baseline_requested")
    stream.client.delete(meta)
    assert bool(request) == (on_loss == "record")
    if request:
        ms, cause = request.split()
        assert int(ms) > 0
        assert cause in {b"trimmed", "trimmed"}


@Losses
@Partition
@BatchAndStream
def test_a_loss_fails_unless_losses_are_recorded(
    stream: Stream, read: Read, each: str, damage: Damage, holes: list[tuple[int, int]]
) -> None:
    ids = stream.fill(LAST)
    damage(stream, ids)
    with pytest.raises(HistoryMissingError) as raised:
        read(stream, ids[READ_UNTIL - 1], ids[-1], entries_per_partition=each, chunk="9")
    assert raised.value.namespace == stream.namespace
    first, last = holes[0]
    assert raised.value.first == first
    # A task knows only its own partition. A loss right after our position is found at planning and named as a whole.
    assert raised.value.last == last or (each == "7" and raised.value.last < last)
    if first == READ_UNTIL + 1 and last < LAST:
        assert raised.value.last == last


@pytest.mark.parametrize("on_loss", ["fail", "record"])
@Partition
@BatchAndStream
def test_trimming_exactly_up_to_our_position_is_no_loss(stream: Stream, read: Read, each: str, on_loss: str) -> None:
    ids = stream.fill(LAST)
    stream.trim_below(ids[READ_UNTIL])
    rows = read(stream, ids[READ_UNTIL - 1], ids[-1], on_loss=on_loss, entries_per_partition=each)
    assert rows.versions == list(range(READ_UNTIL + 1, LAST + 1))
    assert not rows.holes


@pytest.mark.parametrize("on_loss", ["fail", "record"])
@BatchAndStream
def test_trimming_everything_already_read_is_no_loss(stream: Stream, read: Read, on_loss: str) -> None:
    ids = stream.fill(LAST)
    stream.trim_below(EntryId(BEGAN_MS * 2, 0))
    assert read(stream, ids[-1], ids[-1], on_loss=on_loss).rows == []


@BatchAndStream
def test_entries_trimmed_before_the_first_read_are_no_loss(stream: Stream, read: Read) -> None:
    ids = stream.fill(LAST)
    stream.trim_below(ids[60])
    batch = stream.batch_reader()
    assert read_all(batch, batch.partitions()).versions == list(range(61, LAST + 1))
    reader = stream.stream_reader()
    start = EntryId.parse(reader.initialOffset()[stream.key])
    reader.stop()
    assert start.version == 60
    assert read(stream, start, ids[-1]).versions == list(range(61, LAST + 1))


def interrupted(stream: Stream, on_loss: str, damage: Callable[[], object]) -> Rows:
    """Reads a partition of 100 entries in chunks of 10; `damage` happens after the first chunk."""
    reader = stream.batch_reader(on_loss=on_loss, chunk="10")
    (part,) = reader.partitions()
    batches = reader.read(part)
    first = next(batches)
    damage()
    return Rows.of([first, *batches])


def test_a_loss_while_reading_is_recorded_or_fails(stream: Stream) -> None:
    ids = stream.fill(LAST)
    rows = interrupted(stream, "record", lambda: stream.trim_below(ids[54]))
    assert rows.all_versions == list(range(1, LAST + 1))
    assert rows.holes == [(11, 54)]

    stream.drop()
    ids = stream.fill(LAST)
    with pytest.raises(HistoryMissingError) as raised:
        interrupted(stream, "fail", lambda: stream.trim_below(ids[54]))
    assert (raised.value.first, raised.value.last) == (11, 54)


@pytest.mark.parametrize("on_loss", ["fail", "record"])
def test_a_stream_emptied_while_reading_is_a_fork(stream: Stream, on_loss: str) -> None:
    stream.fill(LAST)
    with pytest.raises(HistoryForkError):
        interrupted(stream, on_loss, stream.drop)


def rewritten_beyond_our_version(stream: Stream, ids: list[EntryId]) -> None:
    """A failover lost 91 … 100; later changes use the versions 91 … 120 again."""
    stream.drop()
    stream.fill(90)
    stream.fill(120, first=91, ms=BEGAN_MS + 60_000)


def rewritten_to_our_version(stream: Stream, ids: list[EntryId]) -> None:
    stream.drop()
    stream.fill(90)
    stream.fill(LAST, first=91, ms=BEGAN_MS + 60_000)


def rewritten_by_a_slow_clock(stream: Stream, ids: list[EntryId]) -> None:
    """The other server's clock is so far behind that versions are used again at times before our position."""
    stream.drop()
    stream.fill(90)
    stream.append((EntryId(ids[89].ms, version), payload_of(version)) for version in range(91, 141))


FORKS: dict[str, Damage] = {
    "emptied": lambda s, ids: s.drop(),
    "emptied and written again": lambda s, ids: (s.drop(), s.fill(30, ms=BEGAN_MS + 60_000)),
    "lost its last changes": lambda s, ids: (s.drop(), s.fill(90)),
    "lost its last changes and continued": rewritten_beyond_our_version,
    "lost its last changes and is at our version again": rewritten_to_our_version,
    "lost its last changes and continued with a slow clock": rewritten_by_a_slow_clock,
}


@pytest.mark.parametrize("on_loss", ["fail", "record"])
@pytest.mark.parametrize("damage", FORKS.values(), ids=FORKS)
def test_a_fork_always_fails(stream: Stream, damage: Damage, on_loss: str) -> None:
    ids = stream.fill(LAST)
    reader = stream.stream_reader(on_loss=on_loss)
    try:
        assert reader.latestOffset(stream.offset(ids[-1]), reader.getDefaultReadLimit()) == stream.offset(ids[-1])
        damage(stream, ids)
        with pytest.raises(HistoryForkError) as raised:
            reader.latestOffset(stream.offset(ids[-1]), reader.getDefaultReadLimit())
        assert raised.value.ours == LAST
    finally:
        reader.stop()
    with pytest.raises(HistoryForkError):
        stream.batch_reader(start_id=str(ids[-1]), on_loss=on_loss).partitions()


@pytest.mark.parametrize("on_loss", ["fail", "record"])
def test_a_fork_after_planning_fails_in_the_task(stream: Stream, on_loss: str) -> None:
    ids = stream.fill(LAST)
    reader = stream.stream_reader(on_loss=on_loss)
    stream.drop()
    stream.fill(50)
    stream.fill(70, first=51, ms=BEGAN_MS + 60_000)
    for start, end in ((49, 54), (49, 59), (59, 79)):
        with pytest.raises(HistoryForkError):
            list(reader.read(StreamRange(str(ids[start]), str(ids[end]))))
    with pytest.raises(HistoryForkError) as raised:
        list(reader.read(StreamRange(str(ids[59]), str(EntryId(BEGAN_MS + 60_070, 70)))))
    assert (raised.value.ours, raised.value.newest) == (60, 51)


def test_a_hole_row_has_the_position_and_the_missing_versions(stream: Stream) -> None:
    ids = stream.fill(10)
    stream.delete(*ids[3:6])
    rows = as_batch(stream, BEGINNING, ids[-1], on_loss="record")
    name, payload = rows.rows[3]
    assert name == f"{HOLE_PREFIX}{ids[2].ms}-4"
    assert json.loads(payload) == {"v": 1, "kind": "hole", "from_version": 4, "to_version": 6}


def test_an_entry_that_claims_to_be_a_hole_is_an_entry(stream: Stream) -> None:
    (entry_id,) = stream.append([(EntryId(BEGAN_MS, 1), b'{"v":1,"kind":"hole","from_version":1,"to_version":9}')])
    rows = as_batch(stream, BEGINNING, entry_id)
    assert rows.rows[0][0] == str(entry_id)
