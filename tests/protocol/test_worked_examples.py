"""Every frame of the specification is read, and written with the same bytes."""

import zlib

import pytest

from routebook.protocol.connection import Connection
from routebook.protocol.frame import Command, HeaderEncoding, Language, Request, RequestCode, Response, ResponseCode
from routebook.protocol.headers import encode_command, read_boolean, read_long, write_fields
from tests.protocol.golden_frames import golden_frames

JSON, BINARY = HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ
MASTER = {"clusterName": "DefaultCluster", "brokerAddr": "10.0.0.1:10911", "brokerName": "broker-a"}
NO_SUCH_TOPIC = (
    "No topic route info in name server for the topic: NoSuch\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)
SLAVE_ANSWER = Response(0, 5, {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"})
E5_FIELDS = {
    "bodyCrc32": "1560209824",
    "brokerAddr": "10.0.0.1:10911",
    "brokerId": "0",
    "brokerName": "broker-a",
    "clusterName": "DefaultCluster",
    "compressed": "false",
    "enableActingMaster": "false",
    "haServerAddr": "10.0.0.1:10912",
}
E12_FIELDS = {
    "brokerAddr": "10.0.0.1:10911",
    "brokerId": "0",
    "brokerName": "broker-a",
    "clusterName": "DefaultCluster",
}


def body_of(name: str) -> bytes:
    """By the lengths in the frame, without the code under test."""
    frame = golden_frames()[name]
    return frame[8 + int.from_bytes(frame[5:8], "big") :]


EXAMPLES: list[tuple[str, HeaderEncoding, Command]] = [
    ("E1", JSON, Request(105, 1, {"topic": "TopicA"})),
    ("E2", BINARY, Request(105, 2, {"topic": "TopicA"})),
    ("E3", JSON, Response(0, 1, body=body_of("E3"))),
    ("E4", JSON, Response(17, 3, remark=NO_SUCH_TOPIC)),
    ("E5", JSON, Request(103, 4, E5_FIELDS, body_of("E5"))),
    ("E6", JSON, Response(0, 4, {})),
    ("E7a", JSON, SLAVE_ANSWER),
    ("E7b", BINARY, SLAVE_ANSWER),
    ("E8", BINARY, Request(904, 6, MASTER, flag=2)),
    ("E9a", JSON, Request(1234, 7)),
    ("E9b", JSON, Response(3, 7, remark=" request type 1234 not supported")),
    (
        "E10",
        JSON,
        Request(
            905,
            8,
            {"haBrokerAddr": "10.0.0.1:10912", "minBrokerAddr": "10.0.0.1:10911", "minBrokerId": "0"},
            flag=2,
        ),
    ),
    ("E12a", JSON, Request(322, 9, E12_FIELDS, body_of("E12a"))),
    ("E12b", JSON, Response(0, 9, {"changed": "false"}, body_of("E12b"))),
    ("E13", BINARY, Response(0, 1, body=body_of("E13"))),
    ("E14", BINARY, Response(0, 1)),
]
NAMES = [name for name, _, _ in EXAMPLES]


def test_all_examples_of_the_specification_are_tested() -> None:
    assert sorted(NAMES) == sorted(golden_frames())


@pytest.mark.parametrize(("name", "encoding", "command"), EXAMPLES, ids=NAMES)
def test_we_write_the_same_bytes(name: str, encoding: HeaderEncoding, command: Command) -> None:
    assert encode_command(command, encoding) == golden_frames()[name]


@pytest.mark.parametrize(("name", "command"), [(name, command) for name, _, command in EXAMPLES], ids=NAMES)
def test_we_read_what_it_says(name: str, command: Command) -> None:
    connection = Connection()
    if isinstance(command, Response):
        while connection.request(RequestCode.GET_ROUTEINFO_BY_TOPIC)[0] < command.opaque:
            pass
    (event,) = connection.receive(golden_frames()[name])
    assert type(event) is type(command)
    assert event == command


def request_of(name: str) -> Request:
    (event,) = Connection().receive(golden_frames()[name])
    assert isinstance(event, Request)
    return event


def test_a_route_has_rocketmqs_bytes() -> None:
    request, body = request_of("E1"), body_of("E3")
    assert Connection().answer(request, ResponseCode.SUCCESS, body=body) == golden_frames()["E3"]
    assert b"".join(Connection().answer_in_parts(request, ResponseCode.SUCCESS, body)) == golden_frames()["E3"]


def test_a_binary_request_is_answered_in_json_by_default() -> None:
    answer = Connection().answer(request_of("E2"), ResponseCode.SUCCESS, body=body_of("E3"))
    assert answer == golden_frames()["E3"].replace(b'"opaque":1,', b'"opaque":2,')


def test_a_json_request_is_answered_in_binary_if_configured() -> None:
    connection = Connection(encoding=BINARY)
    assert connection.answer(request_of("E1"), ResponseCode.SUCCESS, body=body_of("E13")) == golden_frames()["E13"]
    assert connection.answer(request_of("E1"), ResponseCode.SUCCESS) == golden_frames()["E14"]


def test_the_answer_to_a_registration_has_rocketmqs_bytes() -> None:
    absent = write_fields({"haServerAddr": None, "masterAddr": None})
    assert Connection().answer(request_of("E5"), ResponseCode.SUCCESS, ext=absent) == golden_frames()["E6"]


def test_the_answer_to_an_unknown_code_has_rocketmqs_bytes() -> None:
    request = request_of("E9a")
    remark = f" request type {request.code} not supported"
    answer = Connection().answer(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
    assert answer == golden_frames()["E9b"]


def test_a_oneway_heartbeat_gets_no_answer() -> None:
    request = request_of("E8")
    assert request.is_oneway
    assert Connection().answer(request, ResponseCode.SYSTEM_ERROR, remark="never seen") == b""
    assert list(Connection().answer_in_parts(request, ResponseCode.SUCCESS, b"never seen")) == []


def test_what_we_tell_brokers_has_the_bytes_of_the_reference() -> None:
    connection = Connection()
    for _ in range(8):
        connection.oneway_request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
    fields = write_fields(
        {
            "haBrokerAddr": "10.0.0.1:10912",
            "minBrokerAddr": "10.0.0.1:10911",
            "minBrokerId": 0,
            "offlineBrokerAddr": None,
        }
    )
    assert connection.oneway_request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext=fields) == golden_frames()["E10"]


def test_the_typed_fields_of_a_registration() -> None:
    request = request_of("E5")
    assert request.language is Language.JAVA
    assert read_long(request.ext, "bodyCrc32", None) == zlib.crc32(request.body) & 0x7FFF_FFFF
    assert read_long(request.ext, "brokerId", None) == 0
    assert read_boolean(request.ext, "compressed") is False
