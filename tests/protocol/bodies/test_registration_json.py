"""The JSON form of a registration's body."""

import json
import zlib
from typing import Any

import pytest

from routebook.model.broker import DataVersion, QueueData, Registration, TopicMapping
from routebook.protocol.body_json import (
    BodyError,
    ChecksumError,
    NullBodyError,
    RegistrationBodyError,
    VersionError,
)
from routebook.protocol.registration_body import RegistrationBody
from tests.protocol.bodies.reading import read_registration_body
from tests.protocol.bodies.recorded import BROKER_4_9_7, BROKER_5_5_0, MAPPING, NOW_MS, TOPICS, VERSION

FRESH = DataVersion(timestamp=NOW_MS)
SPEC_4_2 = b"""{"filterServerList":[],
 "topicConfigSerializeWrapper":{
  "dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},
  "mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1700000000000},
  "topicConfigTable":{
   "TBW102":{"attributes":{},"order":false,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",
    "topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8},
   "TopicA":{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":8,
    "topicFilterType":"SINGLE_TAG","topicName":"TopicA","topicSysFlag":0,"writeQueueNums":8}},
  "topicQueueMappingDetailMap":{},
  "topicQueueMappingInfoMap":{
   "TopicA":{"bname":"broker-a","currIdMap":{0:0,2:1},"dirty":false,"epoch":1700000000002,"scope":"__global__",
    "topic":"TopicA","totalQueues":4}}}}"""
SPEC_E5 = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":0,'
    b'"timestamp":1700000000001},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1700000000000},'
    b'"topicConfigTable":{"TBW102":{"attributes":{},"order":false,"perm":7,"readQueueNums":8,'
    b'"topicFilterType":"SINGLE_TAG","topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8},'
    b'"TopicA":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"TopicA","topicSysFlag":0,"writeQueueNums":8}},"topicQueueMappingDetailMap":{},'
    b'"topicQueueMappingInfoMap":{}}}'
)


def read(body: bytes, *, version: int = 513, **options: Any) -> RegistrationBody:
    return read_registration_body(body, version=version, now_ms=NOW_MS, **options)


def of_table(table: str, **options: Any) -> RegistrationBody:
    return read(f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{table}}}}}'.encode(), **options)


def of_config(config: str) -> QueueData:
    return of_table(f'{{"T":{config}}}').topics["T"]


def of_mapping(mapping: str) -> TopicMapping:
    body = read(f'{{"topicConfigSerializeWrapper":{{"topicQueueMappingInfoMap":{{"T":{mapping}}}}}}}'.encode())
    return body.mappings["T"]


def test_the_example_of_the_specification() -> None:
    found = read(SPEC_4_2)
    assert found == RegistrationBody(
        data_version=DataVersion(0, 1_700_000_000_000, 3),
        topics={"TBW102": QueueData(8, 8, 7), "TopicA": QueueData(8, 8, 6)},
        table_keys=None,
        mappings={"TopicA": TopicMapping("TopicA", "broker-a", 4, 1_700_000_000_002, current_ids=((0, 0), (2, 1)))},
        filters=(),
    )


def test_the_worked_example_with_its_checksum() -> None:
    found = read(SPEC_E5, body_crc32=1_560_209_824)
    assert found.topics == {"TBW102": QueueData(8, 8, 7), "TopicA": QueueData(8, 8, 6)}
    assert found.data_version == DataVersion(0, 1_700_000_000_001, 3)


def test_what_a_broker_of_5_5_0_writes() -> None:
    found = read(BROKER_5_5_0)
    assert found == RegistrationBody(VERSION, TOPICS, None, {"TBW102": MAPPING}, ("10.0.0.1:30000",))


def test_what_a_broker_of_4_9_7_writes() -> None:
    found = read(BROKER_4_9_7, version=407)
    assert found.data_version == DataVersion(0, 1_700_000_000_001, 3)
    assert found.topics == {"TBW102": QueueData(8, 8, 7)}
    assert found.filters == ("10.0.0.1:30000",)


def test_all_fields_of_the_body_are_fields_of_a_registration() -> None:
    found = read(SPEC_4_2)
    sent = {name: getattr(found, name) for name in RegistrationBody.__slots__}
    registration = Registration(cluster="c", broker="b", broker_id=0, address="h:1", **sent)
    assert registration.topics is found.topics


def test_no_body_is_an_empty_table_of_version_zero() -> None:
    assert read(b"") == RegistrationBody(DataVersion(0, 0, 0), filters=())
    assert read(b"", compressed=True) == RegistrationBody(DataVersion(0, 0, 0), filters=())
    assert read(b"", version=36) == RegistrationBody(DataVersion(0, 0, 0), filters=None)


def test_before_3_0_11_the_body_is_the_inner_wrapper_and_there_is_no_filter_list() -> None:
    wrapper = json.dumps({"dataVersion": {"counter": 1, "timestamp": 2}, "topicConfigTable": {"T": {"topicName": "T"}}})
    assert read(wrapper.encode(), version=36) == RegistrationBody(
        DataVersion(0, 2, 1), {"T": QueueData()}, filters=None
    )
    assert read(wrapper.encode(), version=37) == RegistrationBody(FRESH, filters=())
    assert read(wrapper.encode(), version=0, compressed=True).topics == {"T": QueueData()}


@pytest.mark.parametrize(
    ("sent", "filters"),
    [
        ("{}", ()),
        ('{"filterServerList":null}', None),
        ('{"filterServerList":[]}', ()),
        ('{"filterServerList":["a:1","b:2"]}', ("a:1", "b:2")),
        ('{"filterServerList":["a",null,1,true]}', ("a", "1", "true")),
        ('{"filterServerList":"a:1"}', ("a:1",)),
    ],
)
def test_an_absent_filter_list_removes_the_stored_one_and_null_keeps_it(
    sent: str, filters: tuple[str, ...] | None
) -> None:
    assert read(sent.encode()).filters == filters


@pytest.mark.parametrize(
    ("sent", "version"),
    [
        ("{}", FRESH),
        ('{"dataVersion":{}}', FRESH),
        ('{"dataVersion":null}', None),
        ('{"dataVersion":{"timestamp":5}}', DataVersion(0, 5, 0)),
        ('{"dataVersion":{"timestamp":"5","counter":"7","stateVersion":null}}', DataVersion(0, 5, 7)),
        ('{dataVersion:{timestamp:5,counter:7}}', DataVersion(0, 5, 7)),
        ('{"dataVersion":{"timestamp":1,"counter":-9223372036854775808,"stateVersion":9223372036854775807}}',
         DataVersion(2**63 - 1, 1, -(2**63))),
    ],
)  # fmt: skip
def test_data_versions_and_their_defaults(sent: str, version: DataVersion | None) -> None:
    assert read(f'{{"topicConfigSerializeWrapper":{sent}}}'.encode()).data_version == version


def test_the_topic_has_the_name_in_its_configuration_and_not_the_key() -> None:
    found = of_table('{"A":{"topicName":"B"},"C":{"topicName":"C"}}')
    assert set(found.topics) == {"B", "C"}
    assert found.table_keys == frozenset({"A", "C"})


def test_two_keys_with_the_same_name_are_two_keys_of_the_table() -> None:
    found = of_table('{"A":{"topicName":"A"},"B":{"topicName":"A","perm":2}}')
    assert found.topics == {"A": QueueData(perm=2)}
    assert found.table_keys == frozenset({"A", "B"})


def test_the_last_of_equal_keys_counts() -> None:
    assert of_table('{"A":{"topicName":"A"},"A":{"topicName":"A2","perm":1,"perm":"4"}}').topics == {
        "A2": QueueData(perm=4)
    }


@pytest.mark.parametrize(
    ("config", "queues"),
    [
        ('{"topicName":"T"}', QueueData(16, 16, 6, 0)),
        ('{"topicName":"T","readQueueNums":null,"perm":null,"attributes":null}', QueueData(16, 16, 6, 0)),
        ('{"topicName":"T","readQueueNums":"8","writeQueueNums":"","perm":"7"}', QueueData(8, 16, 7, 0)),
        ('{"topicName":"T","readQueueNums":8.9,"writeQueueNums":1e2,"topicSysFlag":true}', QueueData(8, 100, 6, 1)),
        ('{"topicName":"T","readQueueNums":-1,"writeQueueNums":"+2.5"}', QueueData(-1, 2, 6, 0)),
        ("{'topicName':'T',perm:4,}", QueueData(16, 16, 4, 0)),
        ('{"topicName":"T","new":{"key":[1,{2:3}]},"topicFilterType":"NEW","order":"?"}', QueueData()),
    ],
)
def test_queue_data_as_real_parsers_read_them(config: str, queues: QueueData) -> None:
    assert of_config(config) == queues


def test_names_that_are_not_texts_become_texts() -> None:
    found = of_table('{"a":{"topicName":5},"b":{"topicName":true},"c":{"topicName":"\\ud800x"},"d":{"topicName":"ä"}}')
    assert set(found.topics) == {"5", "true", "?x", "ä"}


@pytest.mark.parametrize(
    ("sent", "mapping"),
    [
        ('{"bname":"b"}', TopicMapping("T", "b")),
        ('{"topic":"U","bname":"b","scope":null,"currIdMap":null,"epoch":null}', TopicMapping("U", "b")),
        ('{"topic":"T","bname":"b","totalQueues":"4","epoch":"7","dirty":"TRUE","scope":"s","currIdMap":{0:"0","2":1}}',
         TopicMapping("T", "b", 4, 7, True, "s", ((0, 0), (2, 1)))),
        ('{"bname":"b","dirty":1,"epoch":1.9,"currIdMap":{10:0,2:0,0:1,"0":5}}',
         TopicMapping("T", "b", 0, 1, True, current_ids=((0, 5), (2, 0), (10, 0)))),
        ('{"bname":"b","dirty":"yes"}', TopicMapping("T", "b")),
    ],
)  # fmt: skip
def test_mappings_of_static_topics(sent: str, mapping: TopicMapping) -> None:
    assert of_mapping(sent) == mapping


def test_a_null_wrapper_or_table_is_an_empty_one() -> None:
    assert read(b'{"topicConfigSerializeWrapper":null}') == RegistrationBody(FRESH)
    nulls = b'{"topicConfigSerializeWrapper":{"topicConfigTable":null,"topicQueueMappingInfoMap":null}}'
    assert read(nulls) == RegistrationBody(FRESH)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"5",
        b"{} {}",
        b'{"topicConfigSerializeWrapper":[]}',
        b'{"filterServerList":5}',
        b'{"filterServerList":[[]]}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":[]}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":9223372036854775808}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":[]}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":null}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":5}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":null}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":["a"]}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T","perm":"abc"}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T","perm":" 6"}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T","perm":[6]}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T","perm":1e999}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T","perm":2147483648}}}}',
        b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":null}}}',
        b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":{}}}}',
        b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":{"bname":"b","currIdMap":{"a":0}}}}}',
        b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":{"bname":"b","currIdMap":{0:null}}}}}',
        b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":{"bname":"b","currIdMap":[]}}}}',
    ],
)
def test_an_invalid_body_is_refused_as_a_whole(body: bytes) -> None:
    with pytest.raises(RegistrationBodyError) as caught:
        read(body)
    assert "Failed to decode RegisterBrokerBody" in caught.value.remark
    assert isinstance(caught.value.cause, BodyError)


@pytest.mark.parametrize("body", [b"null", b" null ", b'{"a":"\xff"}', zlib.compress(b"{}")])
@pytest.mark.parametrize("version", [0, 36, 37, 513])
def test_null_and_invalid_utf_8_are_refused_with_a_null_pointer(body: bytes, version: int) -> None:
    with pytest.raises(NullBodyError) as caught:
        read(body, version=version)
    assert "NullPointerException" in caught.value.remark


def test_the_checksum_is_checked_first() -> None:
    with pytest.raises(ChecksumError) as caught:
        read(b"no JSON", version=-1, body_crc32=5)
    assert caught.value.remark == "crc32 not match"
    assert caught.value.found == zlib.crc32(b"no JSON") & 0x7FFFFFFF


def test_a_checksum_of_zero_is_not_checked_and_no_body_has_the_sum_zero() -> None:
    assert read(b"{}", body_crc32=0).topics == {}
    assert read(b"{}", body_crc32=zlib.crc32(b"{}") & 0x7FFFFFFF).topics == {}
    with pytest.raises(ChecksumError):
        read(b"", body_crc32=1)


def test_a_negative_version_is_refused() -> None:
    with pytest.raises(VersionError):
        read(b"{}", version=-1)
    with pytest.raises(VersionError):
        read(b"", version=-1)


def test_topics_with_the_same_queues_share_one_value() -> None:
    found = of_table('{"A":{"topicName":"A","perm":6},"B":{"topicName":"B","perm":6}}')
    assert found.topics["A"] is found.topics["B"]
