"""Plain values: what they say, and that what is packed comes back."""

from hypothesis import given
from hypothesis import strategies as st

from routebook.model.broker import BrokerGroup, DataVersion
from routebook.model.topic import PERM_READ_WRITE, QueueData

numbers = st.integers(-(2**63), 2**63 - 1)


@given(numbers, numbers, numbers)
def test_a_data_version_comes_back(state: int, timestamp: int, counter: int) -> None:
    version = DataVersion(state, timestamp, counter)
    assert DataVersion.unpack(version.pack()) == version


def test_no_data_version_is_not_version_zero() -> None:
    assert DataVersion.unpack("") is None
    assert DataVersion.unpack("0 0 0") == DataVersion()


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 15), st.integers(0, 3), st.booleans())
def test_queue_data_comes_back(read: int, write: int, perm: int, flags: int, by_request: bool) -> None:
    queue = QueueData(read, write, perm, flags, by_request)
    assert QueueData.unpack(queue.pack()) == queue


def test_taking_the_write_bit_leaves_the_others() -> None:
    assert QueueData(perm=7).without_write().perm == 5
    assert not QueueData(perm=5).is_writable
    assert QueueData(perm=PERM_READ_WRITE).is_writable


def test_the_master_is_talked_to_when_there_is_one() -> None:
    assert BrokerGroup("a", "c", addresses={0: "m:1", 1: "s:1"}).address_to_talk_to() == "m:1"


def test_without_a_master_any_member_will_do() -> None:
    group = BrokerGroup("a", "c", addresses={1: "s:1", 2: "t:1"})
    assert {group.address_to_talk_to() for _ in range(200)} == {"s:1", "t:1"}


def test_nobody_can_be_talked_to_in_an_empty_group() -> None:
    assert BrokerGroup("a", "c").address_to_talk_to() is None
