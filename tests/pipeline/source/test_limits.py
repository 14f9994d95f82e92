"""How much at a time: entries a batch, bytes a reply."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from routebook_pipeline.source import reading
from routebook_pipeline.source.reading import REPLY_BYTES, next_size
from routebook_pipeline.source.stream import EntryId
from tests.pipeline.source.streams import BEGAN_MS, Found, Stream, read_all


def test_a_limit_ends_a_batch_at_exactly_that_entry(stream: Stream) -> None:
    ids = stream.fill(60, step_ms=0) + stream.fill(100, first=61)
    reader = stream.stream_reader(max_entries_per_trigger="25")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(25)
    offset, ends = reader.initialOffset(), []
    while (latest := reader.latestOffset(offset, limit)) != offset:
        ends.append(EntryId.parse(latest[stream.key]))
        offset = latest
    reader.stop()
    assert ends == [ids[24], ids[49], ids[74], ids[99]]


def test_without_a_limit_everything_is_taken_whatever_the_options_say(stream: Stream) -> None:
    ids = stream.fill(100)
    reader = stream.stream_reader(max_entries_per_trigger="25")
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == stream.offset(ids[-1])
    reader.stop()


def test_available_now_is_what_there_was_at_the_beginning(stream: Stream) -> None:
    ids = stream.fill(30)
    reader = stream.stream_reader()
    reader.prepareForTriggerAvailableNow()
    stream.fill(50, first=31)
    assert reader.latestOffset(stream.offset(ids[9]), ReadMaxRows(10)) == stream.offset(ids[19])
    assert reader.latestOffset(stream.offset(ids[19]), ReadMaxRows(10)) == stream.offset(ids[29])
    assert reader.latestOffset(stream.offset(ids[29]), ReadMaxRows(10)) == stream.offset(ids[29])
    reader.stop()


def test_nothing_new_is_the_same_offset_letter_by_letter(stream: Stream) -> None:
    ids = stream.fill(3)
    reader = stream.stream_reader()
    start = stream.offset(ids[-1])
    assert str(reader.latestOffset(start, ReadMaxRows(5))) == str(start)
    assert reader.partitions(start, start) == []
    reader.stop()


@pytest.mark.parametrize(("starting", "version"), [("earliest", 0), ("latest", 20)])
def test_a_query_without_checkpoint_starts_where_it_is_told(stream: Stream, starting: str, version: int) -> None:
    ids = stream.fill(20)
    reader = stream.stream_reader(starting=starting)
    assert EntryId.parse(reader.initialOffset()[stream.key]).version == version
    reader.stop()
    reader = stream.stream_reader(starting=starting, start_id=str(ids[6]))
    assert reader.initialOffset() == stream.offset(ids[6])
    reader.stop()


def test_the_newest_is_reported_for_the_progress(stream: Stream) -> None:
    ids = stream.fill(20)
    reader = stream.stream_reader()
    assert reader.reportLatestOffset() == stream.offset(ids[-1])
    reader.stop()


def test_a_stream_nobody_wrote_to_is_empty(stream: Stream) -> None:
    batch = stream.batch_reader()
    assert batch.partitions() == []
    reader = stream.stream_reader()
    assert reader.latestOffset(reader.initialOffset(), ReadMaxRows(5)) == stream.offset(EntryId(0, 0))
    reader.stop()


def test_a_batch_ends_where_it_is_told(stream: Stream) -> None:
    ids = stream.fill(100)
    reader = stream.batch_reader(start_id=str(ids[9]), end_id=str(ids[29]), entries_per_partition="7", chunk="3")
    parts = reader.partitions()
    assert len(parts) == 3
    assert read_all(reader, parts).versions == list(range(11, 31))


def test_replies_stay_within_their_bytes(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small entries first, so that many are asked for, then the largest there are."""
    large = b"x" * 256 * 1024
    ids = stream.fill(1_000)
    ids += stream.append((EntryId(BEGAN_MS + 2_000, version), large) for version in range(1_001, 1_161))
    asked: list[tuple[int, int]] = []
    counted = reading.next_size

    def noted(size: int, chunk: int, reply_bytes: int) -> int:
        asked.append((size, reply_bytes))
        return counted(size, chunk, reply_bytes)

    monkeypatch.setattr(reading, "next_size", noted)
    reader = stream.batch_reader(chunk="128")
    found = Found.of(batch for part in reader.partitions() for batch in reader.read(part))
    assert found.versions == list(range(1, 1_161))
    assert max(size for size, _ in asked) == 128
    too_large = [number for number, (_, reply_bytes) in enumerate(asked) if reply_bytes > REPLY_BYTES]
    assert too_large, "the case is none"
    for number in too_large:
        assert asked[number + 1][0] == asked[number][0] // 2


def test_the_size_of_a_chunk_follows_the_bytes() -> None:
    assert next_size(64, 5_000, 1_000) == 128
    assert next_size(4_096, 5_000, 1_000) == 5_000
    assert next_size(5_000, 5_000, REPLY_BYTES) == 5_000
    assert next_size(5_000, 5_000, REPLY_BYTES + 1) == 2_500
    assert next_size(1, 5_000, REPLY_BYTES * 2) == 1


def test_the_largest_entries_fit_in_the_first_reply() -> None:
    assert reading.FIRST_CHUNK * 256 * 1024 <= REPLY_BYTES


def test_payloads_pass_whatever_they_are(stream: Stream) -> None:
    payloads = [b"\xff\xfe\x00", b"", b"{}", b"x" * 300_000, "ä€".encode("utf-16")]
    stream.append((EntryId(BEGAN_MS, version), payload) for version, payload in enumerate(payloads, 1))
    stream.client.execute_command("XADD", stream.key, f"{BEGAN_MS}-6", "other", "1", "d", b"found")
    stream.client.execute_command("XADD", stream.key, f"{BEGAN_MS}-7", "other", "1")
    reader = stream.batch_reader()
    rows = read_all(reader, reader.partitions()).rows
    assert [payload for _, payload in rows] == [*payloads, b"found", b""]
