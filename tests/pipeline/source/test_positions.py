"""A position is found whichever entries are left in the stream, and split ranges cover every version exactly once."""

import bisect
import secrets
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routebook_pipeline.errors import HistoryForkError
from routebook_pipeline.source.stream import BEGINNING, EntryId, FirstAt, StreamReader, find_position, split_range
from tests.pipeline.source.streams import BEGAN_MS, URL_ENV, Stream, payload_of, read_all


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "1-2-3", "a-1", "1-b", " 1-2", "1.0-2", "+", "hole:1-2"])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="id of an entry"):
        EntryId.parse(text)


def test_ids_sort_in_stream_order() -> None:
    assert sorted([EntryId(10, 1), EntryId(9, 20), EntryId(10, 0)]) == [EntryId(9, 20), EntryId(10, 0), EntryId(10, 1)]
    assert EntryId.parse(b"1700000000000-42") == EntryId(1_700_000_000_000, 42)
    assert str(EntryId(5, 6)) == "5-6"


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[EntryId], list[EntryId]]:
    """The entries that were appended, many of them in the same millisecond, and those that are left."""
    steps = draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 1_000, 86_400_000]), min_size=1, max_size=60))
    offset = draw(st.integers(0, 5))
    ms, written = BEGAN_MS, []
    for version, step in enumerate(steps, 1 + offset):
        ms += step
        written.append(EntryId(ms, version))
    gone = draw(st.sets(st.sampled_from(written), max_size=len(written) - 1))
    return written, [entry for entry in written if entry not in gone]


def first_at_in(entries: list[EntryId]) -> FirstAt:
    def first_at(position: EntryId) -> EntryId | None:
        index = bisect.bisect_left(entries, position)
        return entries[index] if index < len(entries) else None

    return first_at


@given(histories())
def test_a_position_separates_earlier_from_later_versions(history: tuple[list[EntryId], list[EntryId]]) -> None:
    written, left = history
    for entry in written:
        position = find_position(first_at_in(left), entry.version, left[0].ms, written[-1].ms)
        assert position.version == entry.version
        assert [found for found in left if found <= position] == [
            found for found in left if found.version <= entry.version
        ]
        assert entry not in left or position == entry


@given(histories(), st.integers(1, 20))
def test_split_ranges_are_consecutive_and_equal(history: tuple[list[EntryId], list[EntryId]], each: int) -> None:
    written, left = history
    start, end = EntryId(written[0].ms, written[0].version - 1), written[-1]
    ranges = split_range(first_at_in(left), start, end, each)
    assert ranges[0][0] == start
    assert ranges[-1][1] == end
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    sizes = [last.version - first.version for first, last in ranges]
    assert max(sizes) <= each
    assert max(sizes) - min(sizes) <= 1


def test_an_empty_range_has_no_parts() -> None:
    assert split_range(first_at_in([]), EntryId(5, 5), EntryId(5, 5), 10) == []


@given(history=histories(), each=st.integers(1, 20), chunk=st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_partitions_of_a_real_stream_hold_every_version_once(
    store_url: str, history: tuple[list[EntryId], list[EntryId]], each: int, chunk: int
) -> None:
    written, left = history
    with pytest.MonkeyPatch.context() as patch, Stream(store_url, f"t-{secrets.token_hex(6)}") as stream:
        patch.setenv(URL_ENV, store_url)
        stream.append((entry, payload_of(entry.version)) for entry in written)
        if gone := sorted(set(written) - set(left)):
            stream.delete(*gone)
        options = {"entries_per_partition": str(each), "chunk": str(chunk), "on_loss": "record"}
        start = EntryId(written[0].ms, written[0].version - 1)
        reader = stream.batch_reader(start_id=str(start), end_id=str(written[-1]), **options)
        rows = read_all(reader, reader.partitions())
    assert rows.all_versions == [entry.version for entry in written]
    assert rows.versions == [entry.version for entry in left]


class TestStreamReader:
    def test_finds_the_end_when_all_entries_are_gone(self, stream: Stream) -> None:
        ids = stream.fill(10)
        stream.delete(*ids)
        with StreamReader(URL_ENV, stream.namespace) as reader:
            assert reader.newest().id == ids[-1]
            assert reader.newest().version == 10
            assert reader.first() is None
            assert reader.earliest() == ids[-1]

    def test_starts_at_the_beginning_of_a_stream_that_does_not_exist(self, stream: Stream) -> None:
        with StreamReader(URL_ENV, stream.namespace) as reader:
            assert reader.newest().id == BEGINNING
            assert reader.earliest() == BEGINNING
            assert reader.continues(BEGINNING)

    def test_starts_before_the_first_entry_that_is_left(self, stream: Stream) -> None:
        ids = stream.fill(100)
        stream.trim_below(ids[60])
        with StreamReader(URL_ENV, stream.namespace) as reader:
            assert reader.first() == ids[60]
            assert reader.earliest() == EntryId(ids[60].ms, 60)
            assert all(
                reader.continues(position) for position in (ids[0], ids[59], reader.earliest(), ids[60], ids[-1])
            )

    def test_reports_whether_the_stream_continues_a_position(self, stream: Stream) -> None:
        """The store lost everything after 90, and went on to 120 a minute later."""
        ids = stream.fill(90)
        stream.fill(120, first=91, ms=BEGAN_MS + 60_000)
        with StreamReader(URL_ENV, stream.namespace) as reader:
            assert reader.continues(ids[-1])
            read_before = [EntryId(BEGAN_MS + version, version) for version in (91, 100, 120, 130)]
            assert not any(reader.continues(position) for position in read_before)
            with pytest.raises(HistoryForkError) as raised:
                reader.refuse_fork(read_before[0], reader.newest().id)
            assert (raised.value.ours, raised.value.newest) == (91, 120)
            stream.trim_below(EntryId(BEGAN_MS + 60_110, 0))
            assert reader.continues(read_before[0]), "the entries that would prove the fork are gone"

    def test_the_time_is_that_of_the_stores_clock(self, stream: Stream) -> None:
        seconds, microseconds = stream.client.execute_command("TIME")
        with StreamReader(URL_ENV, stream.namespace) as reader:
            assert reader.newest().now_ms >= int(seconds) * 1000 + int(microseconds) // 1000

    def test_writes_its_position_for_the_service(self, stream: Stream) -> None:
        stream.fill(10)
        key = f"rb:{{{stream.namespace}}}:readers"
        with StreamReader(URL_ENV, stream.namespace) as reader:
            before = reader.newest().now_ms
            reader.write_reader_position("lake", 7)
            version, ms = stream.client.hget(key, "lake").split()
        stream.client.delete(key)
        assert int(version) == 7
        assert int(ms) >= before
