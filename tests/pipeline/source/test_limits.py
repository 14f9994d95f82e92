"""Limits: entries in a batch, bytes in a reply."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from routebook_pipeline.source import reading
from routebook_pipeline.source.reading import TARGET_REPLY_BYTES, next_size
from routebook_pipeline.source.stream import EntryId
from tests.pipeline.source.streams import BEGAN_MS, Rows, Stream, read_all


def test_a_batch_ends_at_exactly_the_entry_limit(stream: Stream) -> None:
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


def test_without_a_read_limit_from_spark_everything_is_read(stream: Stream) -> None:
    ids = stream.fill(100)
    reader = stream.stream_reader(max_entries_per_trigger="25")
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == stream.offset(ids[-1])
    reader.stop()


def test_available_now_ends_where_the_stream_ended_at_the_start(stream: Stream) -> None:
    ids = stream.fill(30)
    reader = stream.stream_reader()
    reader.prepareForTriggerAvailableNow()
    stream.fill(50, first=31)
    assert reader.latestOffset(stream.offset(ids[9]), ReadMaxRows(10)) == stream.offset(ids[19])
    assert reader.latestOffset(stream.offset(ids[19]), ReadMaxRows(10)) == stream.offset(ids[29])
    assert reader.latestOffset(stream.offset(ids[29]), ReadMaxRows(10)) == stream.offset(ids[29])
    reader.stop()


def test_without_new_entries_the_offset_has_the_same_text(stream: Stream) -> None:
    ids = stream.fill(3)
    reader = stream.stream_reader()
    start = stream.offset(ids[-1])
    assert str(reader.latestOffset(start, ReadMaxRows(5))) == str(start)
    assert reader.partitions(start, start) == []
    reader.stop()


@pytest.mark.parametrize(("starting", "version"), [("earliest", 0), ("latest", 20)])
def test_a_query_without_checkpoint_starts_where_its_options_say(stream: Stream, starting: str, version: int) -> None:
    ids = stream.fill(20)
    reader = stream.stream_reader(starting=starting)
    assert EntryId.parse(reader.initialOffset()[stream.key]).version == version
    reader.stop()
    reader = stream.stream_reader(starting=starting, start_id=str(ids[6]))
    assert reader.initialOffset() == stream.offset(ids[6])
    reader.stop()


def test_the_newest_entry_is_reported_to_spark_for_its_progress(stream: Stream) -> None:
    ids = stream.fill(20)
    reader = stream.stream_reader()
    assert reader.reportLatestOffset() == stream.offset(ids[-1])
    reader.stop()


def test_a_stream_that_does_not_exist_is_empty(stream: Stream) -> None:
    batch = stream.batch_reader()
    assert batch.partitions() == []
    reader = stream.stream_reader()
    assert reader.latestOffset(reader.initialOffset(), ReadMaxRows(5)) == stream.offset(EntryId(0, 0))
    reader.stop()


def test_a_batch_ends_at_its_end_id(stream: Stream) -> None:
    ids = stream.fill(100)
    reader = stream.batch_reader(start_id=str(ids[9]), end_id=str(ids[29]), entries_per_partition="7", chunk="3")
    parts = reader.partitions()
    assert len(parts) == 3
    assert read_all(reader, parts).versions == list(range(11, 31))


def test_the_reply_after_a_large_one_has_half_as_many_entries(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small entries first, so that many are requested at once, then entries of the largest size."""
    large = b"x" * 256 * 1024
    ids = stream.fill(1_000)
    ids += stream.append((EntryId(BEGAN_MS + 2_000, version), large) for version in range(1_001, 1_161))
    requests: list[tuple[int, int]] = []
    original = reading.next_size

    def recorded(size: int, chunk: int, reply_bytes: int) -> int:
        requests.append((size, reply_bytes))
        return original(size, chunk, reply_bytes)

    monkeypatch.setattr(reading, "next_size", recorded)
    reader = stream.batch_reader(chunk="128")
    rows = Rows.of(batch for part in reader.partitions() for batch in reader.read(part))
    assert rows.versions == list(range(1, 1_161))
    assert max(size for size, _ in requests) == 128
    too_large = [number for number, (_, reply_bytes) in enumerate(requests) if reply_bytes > TARGET_REPLY_BYTES]
    assert too_large, "no reply was too large: the test proves nothing"
    for number in too_large:
        assert requests[number + 1][0] == requests[number][0] // 2


def test_the_chunk_size_follows_the_bytes_of_the_reply() -> None:
    assert next_size(64, 5_000, 1_000) == 128
    assert next_size(4_096, 5_000, 1_000) == 5_000
    assert next_size(5_000, 5_000, TARGET_REPLY_BYTES) == 5_000
    assert next_size(5_000, 5_000, TARGET_REPLY_BYTES + 1) == 2_500
    assert next_size(1, 5_000, TARGET_REPLY_BYTES * 2) == 1


def test_the_largest_entries_fit_in_the_first_reply() -> None:
    assert reading.FIRST_CHUNK * 256 * 1024 <= TARGET_REPLY_BYTES


def test_payloads_are_passed_on_unchanged(stream: Stream) -> None:
    payloads = [b"\xff\xfe\x00", b"", b"{}", b"x" * 300_000, "ä€".encode("utf-16")]
    stream.append((EntryId(BEGAN_MS, version), payload) for version, payload in enumerate(payloads, 1))
    stream.client.execute_command("XADD", stream.key, f"{BEGAN_MS}-6", "other", "1", "d", b"found")
    stream.client.execute_command("XADD", stream.key, f"{BEGAN_MS}-7", "other", "1")
    reader = stream.batch_reader()
    rows = read_all(reader, reader.partitions()).rows
    assert [payload for _, payload in rows] == [*payloads, b"found", b""]
