"""A body that was read arrives as it was, in parts of bounded size."""

import pickle
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routebook.model.broker import DataVersion
from routebook.model.topic import QueueData, TopicMapping
from routebook.protocol.body_json import (
    BodyError,
    ChecksumError,
    InflateLimitError,
    JsonShapeError,
    NullBodyError,
    RegistrationBodyError,
    VersionError,
)
from routebook.protocol.request_bodies import RegistrationBody
from routebook.remoting import body_parts
from routebook.remoting.body_parts import Assembly, part_of_error, parts_of

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=6)
QUEUES = st.builds(QueueData, INT, INT, INT, INT)
IDS = st.lists(st.tuples(INT, INT), max_size=9).map(tuple)
MAPPINGS = st.builds(TopicMapping, TEXT, TEXT, INT, LONG, st.booleans(), TEXT, IDS)
BODIES = st.builds(
    RegistrationBody,
    st.none() | st.builds(DataVersion, LONG, LONG, LONG),
    st.dictionaries(TEXT, QUEUES, max_size=9),
    st.none() | st.frozensets(TEXT, max_size=9),
    st.dictionaries(TEXT, MAPPINGS, max_size=9),
    st.none() | st.lists(TEXT, max_size=9).map(tuple),
)
ERRORS: list[BodyError] = [
    VersionError(-7),
    ChecksumError(1, 2),
    InflateLimitError(5),
    NullBodyError("the registration is null"),
    JsonShapeError("perm", [1], "a number"),
    RegistrationBodyError(JsonShapeError("perm", [1], "a number")),
]


def assembled(said: RegistrationBody) -> RegistrationBody:
    assembly = Assembly()
    *some, last = parts_of(said, resident_bytes=77)
    assert [assembly.take(part) for part in some] == [None] * len(some)
    arrived = assembly.take(last)
    assert arrived
    assert assembly.resident_bytes == 77
    return arrived


@settings(max_examples=200, deadline=None)
@given(BODIES)
def test_what_a_body_says_arrives(said: RegistrationBody) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for bound in ("NAMES_PER_PART", "VALUES_PER_PART"):
            patch.setattr(body_parts, bound, 2)
        patch.setattr(body_parts, "NUMBERS_PER_PART", 4)
        arrived = assembled(said)
    assert arrived == said
    assert list(arrived.topics) == list(said.topics)


def test_equal_queues_stay_one_value_beyond_the_bounds_of_parts() -> None:
    shared, other = QueueData(8, 8), QueueData(1, 1)
    topics = {f"topic-{n}": shared if n % 3 else other for n in range(3 * body_parts.NAMES_PER_PART)}
    assert len({id(queue) for queue in assembled(RegistrationBody(None, topics)).topics.values()}) == 2


def test_no_part_holds_more_than_the_loop_takes_in_at_once() -> None:
    said = RegistrationBody(
        DataVersion(),
        {f"t{n}": QueueData(n) for n in range(body_parts.NAMES_PER_PART + 1)},
        frozenset(f"k{n}" for n in range(2 * body_parts.NAMES_PER_PART)),
        {"m": TopicMapping("m", "b", current_ids=tuple((n, n) for n in range(body_parts.NUMBERS_PER_PART)))},
        tuple(f"f{n}" for n in range(2 * body_parts.NAMES_PER_PART)),
    )
    bounds = {"queues": body_parts.VALUES_PER_PART, "mappings": body_parts.VALUES_PER_PART}
    bounds |= {"ids": body_parts.NUMBERS_PER_PART}
    for part in parts_of(said):
        kind, *content = pickle.loads(part)
        longest = max((len(one) for one in content if isinstance(one, list | tuple | array)), default=0)
        assert longest <= bounds.get(kind, body_parts.NAMES_PER_PART), kind
    assert assembled(said) == said


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_the_same_error(error: BodyError) -> None:
    with pytest.raises(BodyError) as arrived:
        Assembly().take(part_of_error(error))
    same(arrived.value, error)


def same(found: BodyError, expected: BodyError) -> None:
    assert type(found) is type(expected)
    assert (str(found), found.remark, found.advice) == (str(expected), expected.remark, expected.advice)
    assert found.__dict__.keys() == expected.__dict__.keys()
    if isinstance(found, RegistrationBodyError) and isinstance(expected, RegistrationBodyError):
        same(found.cause, expected.cause)
