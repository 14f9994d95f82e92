"""A large registration is read in steps, with the same outcome as in one go."""

import gc
import json
import random
import time
import zlib
from typing import Any, Never

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routebook.model.broker import QueueData
from routebook.protocol import body_json, registration_body
from routebook.protocol.body_json import BodyError, JsonLimitError, JsonSyntaxError, RegistrationBodyError
from routebook.protocol.registration_body import RegistrationBody, read_registration_in_steps
from tests.protocol.bodies.compressed_bodies import compressed, content_of
from tests.protocol.bodies.reading import read_registration_body
from tests.protocol.bodies.recorded import BROKER_5_5_0, NOW_MS
from tests.protocol.fuzzing import bodies

STEP_CPU_S = 0.025
"""A step takes one or two milliseconds; the rest is for a slow machine."""


@pytest.fixture
def tiny_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a few hundred bytes were a large body."""
    for name, value in {"_STEP_BYTES": 64, "_SLICE_BYTES": 100, "_STEP_TOPICS": 3, "_STEP_MAPPED_QUEUES": 10}.items():
        monkeypatch.setattr(registration_body, name, value)


def body_of(topics: int, *, static: int = 0, attributes: object = None) -> bytes:
    """As a broker of 5.5.0 writes it, integer keys and all."""
    names = [f"orders-{number}" for number in range(topics)]
    table = {
        name: {
            "attributes": attributes or {},
            "order": False,
            "perm": 6,
            "readQueueNums": 8 + number % 3,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        for number, name in enumerate(names)
    }
    mappings = {
        name: {"bname": "broker-a", "currIdMap": {"0": 0, "-1": 2}, "dirty": False, "epoch": 7, "topic": name}
        for name in names[:static]
    }
    version = {"counter": 3, "stateVersion": 0, "timestamp": 1_700_000_000_001}
    wrapper = {"dataVersion": version, "topicConfigTable": table, "topicQueueMappingInfoMap": mappings}
    body = {"filterServerList": ["10.0.0.1:30000"], "topicConfigSerializeWrapper": wrapper}
    return json.dumps(body, separators=(",", ":")).encode().replace(b'"0":0,"-1":2', b"0:0,-1:2")


def in_one_go(body: bytes) -> RegistrationBody:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration_body, "_STEP_BYTES", len(body) + 1)
        return read_registration_body(body, version=513, now_ms=NOW_MS)


def outcome(body: bytes, **options: Any) -> object:
    try:
        return read_registration_body(body, **{"version": 513, "now_ms": NOW_MS, **options})
    except RegistrationBodyError as error:
        return type(error.cause)
    except BodyError as error:
        return type(error)


def steps_of(body: bytes, **options: Any) -> list[float]:
    """Seconds of processor time of each step."""
    steps = read_registration_in_steps(body, version=513, now_ms=NOW_MS, **options)
    taken = []
    # A full collection looks at all objects of the tests that ran before.
    gc.disable()
    try:
        while True:
            began = time.thread_time()
            ended = next(steps, "end")
            taken.append(time.thread_time() - began)
            if ended:
                return taken
    finally:
        gc.enable()


@pytest.mark.usefixtures("tiny_steps")
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.booleans())
def test_slices_give_what_one_go_gives(topics: int, static: int, has_attributes: bool) -> None:
    attributes = {"a": {"b": {}}, "c": '},"x":{'} if has_attributes else {}
    body = body_of(topics, static=static, attributes=attributes)
    found = read_registration_body(body, version=513, now_ms=NOW_MS)
    assert found == in_one_go(body)
    assert list(found.topics) == [f"orders-{number}" for number in range(topics)]
    assert len(found.mappings) == min(static, topics)
    assert found.table_keys is None


@pytest.mark.usefixtures("tiny_steps")
def test_corrupted_bodies_have_the_same_outcome_in_slices_and_in_one_go() -> None:
    source = random.Random(11)
    whole = [body_of(20), body_of(12, static=12), BROKER_5_5_0]
    for _ in range(1_500):
        body = bodies.corrupted(source, source.choice(whole))
        version = source.choice([0, 36, 37, 513])
        sliced = outcome(body, version=version)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(registration_body, "_STEP_BYTES", len(body) + 1)
            assert outcome(body, version=version) == sliced, body


@pytest.mark.usefixtures("tiny_steps")
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(
            lambda body: body.replace(b'"topicName":"orders-3"', b'"topicName":"orders-9"'), id="another name"
        ),
        pytest.param(lambda body: body.replace(b'"orders-9":{', b'"orders-2":{'), id="a key twice"),
        pytest.param(lambda body: b'{"x":' + body + b"," + body[1:], id="the table twice"),
        pytest.param(lambda body: b'{"x":' + body + b"}", id="the table elsewhere"),
        pytest.param(lambda body: body.replace(b'"topicConfigTable":', b'"topicConfigTable" : '), id="blanks"),
        pytest.param(lambda body: b'{"topicConfigTable":{' + body[1:], id="an object that does not end"),
        pytest.param(lambda body: body[:-1], id="the last byte missing"),
    ],
)
def test_unusual_tables_are_read_in_one_go(spoil: Any) -> None:
    body = spoil(body_of(30, static=30))
    sliced = outcome(body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration_body, "_STEP_BYTES", len(body) + 1)
        assert outcome(body) == sliced


def test_the_strict_decoder_and_the_lenient_parser_find_the_same() -> None:
    source = random.Random(12)
    accepted = 0
    for _ in range(3_000):
        body = bodies.body(source, bodies.REGISTRATIONS)
        found = outcome(body)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(body_json, "decode_standard", refuse)
            leniently = outcome(body)
        if leniently is not JsonLimitError:  # The lenient parser does not go as deep.
            accepted += isinstance(found, RegistrationBody)
            assert leniently == found, body
    assert accepted > 300


def refuse(body: bytes, decoder: object) -> Never:
    raise msgspec.DecodeError


@pytest.mark.parametrize("static", [0, 2_000])
def test_no_step_of_a_large_registration_takes_long(static: int) -> None:
    body = body_of(30_000, static=static)
    taken = steps_of(body, body_crc32=zlib.crc32(body) & 0x7FFFFFFF)
    assert len(taken) > len(body) / (1024 * 1024)
    assert max(taken) < STEP_CPU_S


def test_no_step_of_a_large_compressed_registration_takes_long() -> None:
    body = compressed(content_of([b"topic-%d 8 8 6 SINGLE_TAG {}" % number for number in range(30_000)]))
    assert max(steps_of(body, compressed=True)) < STEP_CPU_S


def test_a_small_body_is_read_in_one_step_and_a_large_one_waits_before_its_first() -> None:
    assert len(steps_of(body_of(50))) == 1
    steps = read_registration_in_steps(body_of(1_000), version=-1, now_ms=NOW_MS)
    next(steps)
    with pytest.raises(BodyError, match="version is -1"):
        next(steps)


def test_a_large_registration_has_all_topics() -> None:
    found = read_registration_body(body_of(20_000, static=3), version=513, now_ms=NOW_MS)
    assert len(found.topics) == 20_000
    assert found.topics["orders-19999"] == QueueData(8 + 19_999 % 3, 8)
    assert len({id(queues) for queues in found.topics.values()}) == 3
    assert found.mappings["orders-2"].current_ids == ((-1, 2), (0, 0))


def test_a_long_registration_that_is_not_standard_json_is_refused() -> None:
    body = body_of(1_000).replace(b'"', b"'")
    with pytest.raises(RegistrationBodyError) as caught:
        read_registration_body(body, version=513, now_ms=NOW_MS)
    assert isinstance(caught.value.cause, JsonSyntaxError)
