"""Bodies of 322 and 217."""

import pytest

from routebook.model.broker import DataVersion, QueueData
from routebook.protocol.body_json import BodyError, read_data_version, read_queue_datas
from tests.protocol.bodies.recorded import NOW_MS


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (b'{"counter":3,"stateVersion":0,"timestamp":1700000000001}', DataVersion(0, 1_700_000_000_001, 3)),
        (b'{"counter":3,"timestamp":1700000000001}', DataVersion(0, 1_700_000_000_001, 3)),
        (b'{"timestamp":"5","new":[]}', DataVersion(0, 5, 0)),
        (b"{}", DataVersion(0, NOW_MS, 0)),
        (b"", None),
        (b"null", None),
        (b"\xff", None),
    ],
)
def test_data_versions(body: bytes, version: DataVersion | None) -> None:
    assert read_data_version(body, now_ms=NOW_MS) == version


@pytest.mark.parametrize("body", [b"x", b"[]", b"5", b'{"counter":"x"}', b'{"counter":1'])
def test_an_invalid_data_version_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        read_data_version(body, now_ms=NOW_MS)


def test_the_route_of_the_specification() -> None:
    body = (
        b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,'
        b'"topicSysFlag":0,"writeQueueNums":8}]}'
    )
    assert read_queue_datas(body) == (("broker-a", QueueData(8, 8, 6, 0)),)


@pytest.mark.parametrize(
    ("body", "queues"),
    [
        (b"", ()),
        (b"{}", ()),
        (b'{"queueDatas":null}', ()),
        (b'{"queueDatas":[]}', ()),
        (b'{"brokerDatas":[{"brokerAddrs":{0:"h:1"}}],"queueDatas":[]}', ()),
        (b'{"queueDatas":[{"brokerName":"b"}]}', (("b", QueueData(0, 0, 0, 0)),)),
        (b'{"queueDatas":[{"brokerName":"b","perm":"6","readQueueNums":null}]}', (("b", QueueData(0, 0, 6, 0)),)),
        (b'{"queueDatas":[{},null]}', (("", QueueData(0, 0, 0, 0)), ("", QueueData(0, 0, 0, 0)))),
        (b'{"queueDatas":{"brokerName":"b","perm":6}}', (("b", QueueData(0, 0, 6, 0)),)),
        (b'{"queueDatas":[{"brokerName":"b","perm":1},{"brokerName":"a"},{"brokerName":"b","perm":2}]}',
         (("b", QueueData(0, 0, 1, 0)), ("a", QueueData(0, 0, 0, 0)), ("b", QueueData(0, 0, 2, 0)))),
    ],
)  # fmt: skip
def test_queues_keep_their_order_and_absent_numbers_are_zero(
    body: bytes, queues: tuple[tuple[str, QueueData], ...]
) -> None:
    assert read_queue_datas(body) == queues


@pytest.mark.parametrize(
    "body", [b"x", b"[]", b'{"queueDatas":5}', b'{"queueDatas":[5]}', b'{"queueDatas":[{"perm":"x"}]}']
)
def test_an_invalid_route_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        read_queue_datas(body)


@pytest.mark.parametrize("body", [b"null", b"\xff", b" "])
def test_a_null_route_has_no_queues(body: bytes) -> None:
    """As in 5.3.3. Release 5.5.0 accepts only the first of these, and refuses the others."""
    assert read_queue_datas(body) == ()
