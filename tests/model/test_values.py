"""Plain values, and their packed form in the store."""

import gc

from hypothesis import given
from hypothesis import strategies as st

from routebook.model.broker import PERM_READ_WRITE, DataVersion, QueueData, TopicMapping

numbers = st.integers(-(2**63), 2**63 - 1)


@given(numbers, numbers, numbers)
def test_unpacking_a_packed_data_version_returns_it(state: int, timestamp: int, counter: int) -> None:
    version = DataVersion(state, timestamp, counter)
    assert DataVersion.unpack(version.pack()) == version


def test_a_missing_data_version_differs_from_version_zero() -> None:
    assert DataVersion.unpack("") is None
    assert DataVersion.unpack("0 0 0") == DataVersion()


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 15), st.integers(0, 3), st.booleans())
def test_unpacking_packed_queue_data_returns_it(read: int, write: int, perm: int, flags: int, by_request: bool) -> None:
    queue = QueueData(read, write, perm, flags, by_request)
    assert QueueData.unpack(queue.pack()) == queue


def test_the_search_for_garbage_passes_over_queues_and_mappings() -> None:
    """A table has millions of them: to look at each would stop lookups for tens of milliseconds."""
    assert gc.is_tracked({"key": object.__new__(type("Plain", (), {}))})
    assert not gc.is_tracked({"topic": QueueData()})
    assert not gc.is_tracked({"topic": TopicMapping("topic", "broker", current_ids=((0, 0),))})


def test_removing_the_write_permission_keeps_the_other_bits() -> None:
    assert QueueData(perm=7).without_write().perm == 5
    assert not QueueData(perm=5).is_writable
    assert QueueData(perm=PERM_READ_WRITE).is_writable
