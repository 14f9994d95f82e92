"""What the source may be told, and what it refuses, with a reason that repeats no secret."""

import pickle

import pytest

from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.source.data_source import RoutebookDataSource
from routebook_pipeline.source.options import SourceOptions
from routebook_pipeline.source.stream import EntryId, StreamReader
from tests.pipeline.source.streams import Stream


def test_everything_has_a_default() -> None:
    chosen = SourceOptions.parse({})
    assert (chosen.stream, chosen.namespace, chosen.url_env) == ("changes", "default", "ROUTEBOOK_REDIS_URL")
    assert (chosen.max_entries_per_trigger, chosen.entries_per_partition, chosen.chunk) == (500_000, 100_000, 5_000)
    assert (chosen.on_loss, chosen.starting, chosen.start_id, chosen.end_id) == ("fail", "earliest", None, None)


def test_names_are_in_any_case_as_everywhere_in_spark() -> None:
    chosen = SourceOptions.parse({"Stream": "pulse", "ON_LOSS": "record", "start_id": "5-6"})
    assert (chosen.stream, chosen.record_losses, chosen.start_id) == ("pulse", True, EntryId(5, 6))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("url", "redis://:hunter2@somewhere"),
        ("url", "hunter2"),
        ("url_env", "redis://:hunter2@somewhere"),
        ("url_env", "rediss://user:hunter2@somewhere:6380/0"),
        ("url_env", "user:hunter2@somewhere"),
        ("url_env", "not a variable hunter2"),
        ("namespace", "sentinel://a,b/hunter2"),
        ("anything", "unix://:hunter2@/run/store.sock"),
    ],
)
def test_an_address_is_no_option(name: str, value: str) -> None:
    with pytest.raises(WrongUsageError, match="name that variable with the option url_env") as raised:
        RoutebookDataSource({name: value})
    assert "hunter2" not in str(raised.value)
    assert name in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("stream", "pulses", "changes, pulse"),
        ("on_loss", "ignore", "fail, record"),
        ("starting", "lake", "earliest, latest"),
        ("chunk", "0", "from 1"),
        ("chunk", "1e6", "from 1"),
        ("entries_per_partition", "-5", "from 1"),
        ("max_entries_per_trigger", "", "from 1"),
        ("start_id", "17", "<ms>-<version>"),
        ("namespace", "", "no namespace"),
        ("namespace", "a}:{b", "no namespace"),
        ("max_entries", "5", "max_entries_per_trigger"),
    ],
)
def test_what_is_not_allowed_is_refused_with_what_is(name: str, value: str, allowed: str) -> None:
    with pytest.raises(WrongUsageError, match=allowed) as raised:
        RoutebookDataSource({name: value})
    assert name in str(raised.value)


def test_a_variable_without_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOBODY_SET_THIS", raising=False)
    with pytest.raises(WrongUsageError, match="NOBODY_SET_THIS"):
        StreamReader("NOBODY_SET_THIS", "default").newest()


def test_what_travels_holds_no_connection_and_works_there(stream: Stream) -> None:
    ids = stream.fill(10)
    reader = stream.stream_reader()
    assert reader.initialOffset() == stream.offset(EntryId(ids[0].ms, 0))
    there = pickle.loads(pickle.dumps(reader))
    reader.stop()
    (part,) = there.partitions(stream.offset(ids[3]), stream.offset(ids[-1]))
    there.stop()
    assert [batch.num_rows for batch in there.read(pickle.loads(pickle.dumps(part)))] == [6]
