"""No entry goes missing in silence: what a reader expected and did not find is an error, or a row in its place.

Each case is read as a batch and as a stream, whole and in cut partitions; the readers are driven as Spark drives them.
"""

import json
from collections.abc import Callable

import pytest

from routebook_pipeline.errors import HistoryForkError, HistoryMissingError
from routebook_pipeline.source.data_source import StreamRange
from routebook_pipeline.source.reading import HOLE_PREFIX
from routebook_pipeline.source.stream import BEGINNING, EntryId
from tests.pipeline.source.streams import BEGAN_MS, Found, Stream, payload_of, read_all

LAST = 100
Partition = pytest.mark.parametrize("each", ["7", "1000"], ids=["cut", "whole"])


def as_batch(stream: Stream, start: EntryId, end: EntryId, **more: str) -> Found:
    reader = stream.batch_reader(start_id=str(start), end_id=str(end), **more)
    return read_all(reader, reader.partitions())


def as_stream(stream: Stream, start: EntryId, end: EntryId, **more: str) -> Found:
    """A batch of a query whose checkpoint says `start`."""
    reader = stream.stream_reader(**more)
    try:
        limit = reader.getDefaultReadLimit()
        latest = reader.latestOffset(stream.offset(start), limit)
        assert latest == stream.offset(end)
        return read_all(reader, reader.partitions(stream.offset(start), latest))
    finally:
        reader.stop()


Way = Callable[..., Found]
BothWays = pytest.mark.parametrize("way", [as_batch, as_stream])

Damage = Callable[[Stream, list[EntryId]], object]
PLACE = 20
"""The version up to which the reader has everything."""

LOSSES: dict[str, tuple[Damage, list[tuple[int, int]]]] = {
    "trimmed one beyond our place": (lambda s, ids: s.trim_below(ids[21]), [(21, 21)]),
    "trimmed far beyond our place": (lambda s, ids: s.trim_below(ids[89]), [(21, 89)]),
    "first one deleted": (lambda s, ids: s.delete(ids[20]), [(21, 21)]),
    "one in the middle deleted": (lambda s, ids: s.delete(ids[49]), [(50, 50)]),
    "several in the middle deleted": (lambda s, ids: s.delete(*ids[30:40], ids[60]), [(31, 40), (61, 61)]),
    "last one deleted": (lambda s, ids: s.delete(ids[99]), [(100, 100)]),
    "all but one deleted": (lambda s, ids: s.delete(*ids[:70], *ids[71:]), [(21, 70), (72, 100)]),
    "everything trimmed": (lambda s, ids: s.trim_below(EntryId(BEGAN_MS * 2, 0)), [(21, 100)]),
}
Each = pytest.mark.parametrize(("damage", "holes"), LOSSES.values(), ids=LOSSES)


@Each
@Partition
@BothWays
def test_a_recorded_loss_is_a_row_in_its_place(
    stream: Stream, way: Way, each: str, damage: Damage, holes: list[tuple[int, int]]
) -> None:
    ids = stream.fill(LAST)
    damage(stream, ids)
    found = way(stream, ids[PLACE - 1], ids[-1], on_loss="record", entries_per_partition=each, chunk="9")
    # A hole across the border of two partitions may be two rows; no version is in both.
    assert found.accounted == list(range(PLACE + 1, LAST + 1))
    missing = {version for first, last in holes for version in range(first, last + 1)}
    assert set(found.versions) == set(range(PLACE + 1, LAST + 1)) - missing
    if each == "1000":
        assert found.holes == holes


@Each
@Partition
@BothWays
def test_a_loss_fails_unless_it_may_be_recorded(
    stream: Stream, way: Way, each: str, damage: Damage, holes: list[tuple[int, int]]
) -> None:
    ids = stream.fill(LAST)
    damage(stream, ids)
    with pytest.raises(HistoryMissingError) as raised:
        way(stream, ids[PLACE - 1], ids[-1], entries_per_partition=each, chunk="9")
    assert raised.value.namespace == stream.namespace
    first, last = holes[0]
    assert raised.value.first == first
    # A task knows its own partition only; what was trimmed before anybody read is named whole.
    assert raised.value.last == last or (each == "7" and raised.value.last < last)
    if first == PLACE + 1 and last < LAST:
        assert raised.value.last == last


@pytest.mark.parametrize("on_loss", ["fail", "record"])
@Partition
@BothWays
def test_trimmed_exactly_to_our_place_is_no_alarm(stream: Stream, way: Way, each: str, on_loss: str) -> None:
    ids = stream.fill(LAST)
    stream.trim_below(ids[PLACE])
    found = way(stream, ids[PLACE - 1], ids[-1], on_loss=on_loss, entries_per_partition=each)
    assert found.versions == list(range(PLACE + 1, LAST + 1))
    assert not found.holes


@pytest.mark.parametrize("on_loss", ["fail", "record"])
@BothWays
def test_everything_we_have_read_may_be_trimmed(stream: Stream, way: Way, on_loss: str) -> None:
    ids = stream.fill(LAST)
    stream.trim_below(EntryId(BEGAN_MS * 2, 0))
    assert way(stream, ids[-1], ids[-1], on_loss=on_loss).rows == []


@BothWays
def test_trimmed_before_we_ever_came_is_no_loss(stream: Stream, way: Way) -> None:
    ids = stream.fill(LAST)
    stream.trim_below(ids[60])
    batch = stream.batch_reader()
    assert read_all(batch, batch.partitions()).versions == list(range(61, LAST + 1))
    reader = stream.stream_reader()
    start = EntryId.parse(reader.initialOffset()[stream.key])
    reader.stop()
    assert start.version == 60
    assert way(stream, start, ids[-1]).versions == list(range(61, LAST + 1))


def interrupted(stream: Stream, on_loss: str, damage: Callable[[], object]) -> Found:
    """A partition of 100 is read in chunks of 10, and something happens after the first one."""
    reader = stream.batch_reader(on_loss=on_loss, chunk="10")
    (part,) = reader.partitions()
    batches = reader.read(part)
    first = next(batches)
    damage()
    return Found.of([first, *batches])


def test_trimmed_while_reading(stream: Stream) -> None:
    ids = stream.fill(LAST)
    found = interrupted(stream, "record", lambda: stream.trim_below(ids[54]))
    assert found.accounted == list(range(1, LAST + 1))
    assert found.holes == [(11, 54)]

    stream.drop()
    ids = stream.fill(LAST)
    with pytest.raises(HistoryMissingError) as raised:
        interrupted(stream, "fail", lambda: stream.trim_below(ids[54]))
    assert (raised.value.first, raised.value.last) == (11, 54)


@pytest.mark.parametrize("on_loss", ["fail", "record"])
def test_emptied_while_reading_is_another_history(stream: Stream, on_loss: str) -> None:
    stream.fill(LAST)
    with pytest.raises(HistoryForkError):
        interrupted(stream, on_loss, stream.drop)


def rewritten_behind(stream: Stream, ids: list[EntryId]) -> None:
    """A failover took 91 … 100; the next changes have the versions 91 … 120, later."""
    stream.drop()
    stream.fill(90)
    stream.fill(120, first=91, ms=BEGAN_MS + 60_000)


def rewritten_to_our_version(stream: Stream, ids: list[EntryId]) -> None:
    stream.drop()
    stream.fill(90)
    stream.fill(LAST, first=91, ms=BEGAN_MS + 60_000)


def rewritten_by_a_clock_behind(stream: Stream, ids: list[EntryId]) -> None:
    """The other server's clock is so far behind that our versions were used again at times before our place."""
    stream.drop()
    stream.fill(90)
    stream.append((EntryId(ids[89].ms, version), payload_of(version)) for version in range(91, 141))


FORKS: dict[str, Damage] = {
    "emptied": lambda s, ids: s.drop(),
    "emptied and written anew": lambda s, ids: (s.drop(), s.fill(30, ms=BEGAN_MS + 60_000)),
    "lost its tail": lambda s, ids: (s.drop(), s.fill(90)),
    "lost its tail and went on": rewritten_behind,
    "lost its tail and is at our version": rewritten_to_our_version,
    "lost its tail and went on with a slow clock": rewritten_by_a_clock_behind,
}


@pytest.mark.parametrize("on_loss", ["fail", "record"])
@pytest.mark.parametrize("damage", FORKS.values(), ids=FORKS)
def test_another_history_always_fails(stream: Stream, damage: Damage, on_loss: str) -> None:
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
def test_a_planned_range_that_is_another_history_now_fails_in_its_task(stream: Stream, on_loss: str) -> None:
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


def test_a_row_of_a_hole_says_where_and_what(stream: Stream) -> None:
    ids = stream.fill(10)
    stream.delete(*ids[3:6])
    found = as_batch(stream, BEGINNING, ids[-1], on_loss="record")
    name, payload = found.rows[3]
    assert name == f"{HOLE_PREFIX}{ids[2].ms}-4"
    assert json.loads(payload) == {"v": 1, "kind": "hole", "from_version": 4, "to_version": 6}


def test_an_entry_that_claims_to_be_a_hole_is_an_entry(stream: Stream) -> None:
    (entry_id,) = stream.append([(EntryId(BEGAN_MS, 1), b'{"v":1,"kind":"hole","from_version":1,"to_version":9}')])
    found = as_batch(stream, BEGINNING, entry_id)
    assert found.rows[0][0] == str(entry_id)
