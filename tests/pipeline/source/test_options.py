"""The options of the source: defaults, and refusals whose message repeats no secret."""

import pickle

import pytest

from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.source.data_source import RoutebookDataSource
from routebook_pipeline.source.options import SourceOptions
from routebook_pipeline.source.stream import EntryId, StreamReader
from tests.pipeline.source.streams import Stream


def test_every_option_has_a_default() -> None:
    chosen = SourceOptions.parse({})
    assert (chosen.stream, chosen.namespace, chosen.url_env) == ("changes", "default", "ROUTEBOOK_REDIS_URL")
    assert (chosen.max_entries_per_trigger, chosen.entries_per_partition, chosen.chunk) == (500_000, 100_000, 5_000)
    assert (chosen.on_loss, chosen.starting, chosen.start_id, chosen.end_id) == ("fail", "earliest", None, None)


def test_option_names_are_case_insensitive_as_everywhere_in_spark() -> None:
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
def test_an_address_as_an_option_is_refused(name: str, value: str) -> None:
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
        ("namespace", "", "not valid"),
        ("namespace", "a}:{b", "not valid"),
        ("max_entries", "5", "max_entries_per_trigger"),
    ],
)
def test_a_refusal_names_the_allowed_values(name: str, value: str, allowed: str) -> None:
    with pytest.raises(WrongUsageError, match=allowed) as raised:
        RoutebookDataSource({name: value})
    assert name in str(raised.value)


def test_a_variable_without_an_address_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSET_VARIABLE", raising=False)
    with pytest.raises(WrongUsageError, match="UNSET_VARIABLE"):
        StreamReader("UNSET_VARIABLE", "default").newest()


def test_a_pickled_reader_has_no_connection_and_opens_its_own(stream: Stream) -> None:
    ids = stream.fill(10)
    reader = stream.stream_reader()
    assert reader.initialOffset() == stream.offset(EntryId(ids[0].ms, 0))
    copy = pickle.loads(pickle.dumps(reader))
    reader.stop()
    (part,) = copy.partitions(stream.offset(ids[3]), stream.offset(ids[-1]))
    copy.stop()
    assert [batch.num_rows for batch in copy.read(pickle.loads(pickle.dumps(part)))] == [6]
