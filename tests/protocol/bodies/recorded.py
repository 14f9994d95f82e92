"""Bodies that real peers' own code wrote (RocketMQ's remoting library on Java 17), and those of the specification."""

from typing import Final

from routebook.model.broker import DataVersion, QueueData, TopicMapping

NOW_MS: Final = 1_800_000_000_000

BROKER_5_5_0: Final = (
    '{"filterServerList":["10.0.0.1:30000"],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":2,'
    '"timestamp":1700000000001},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1795016502675},'
    '"topicConfigTable":{"%RETRY%grüppe":{"attributes":{"+message.type":"FIFO"},"order":true,"perm":6,'
    '"readQueueNums":1,"topicFilterType":"SINGLE_TAG","topicName":"%RETRY%grüppe","topicSysFlag":1,'
    '"writeQueueNums":1},"TBW102":{"attributes":{},"order":false,"perm":7,"readQueueNums":8,'
    '"topicFilterType":"SINGLE_TAG","topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}},'
    '"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{"TBW102":{"bname":"broker-a","currIdMap":{0:0,2:1},'
    '"dirty":false,"epoch":1700000000002,"scope":"__global__","topic":"TBW102","totalQueues":4}}}}'
).encode()
"""The JSON form, with integer keys in `currIdMap`. 5.3.3 writes the same bytes."""

BROKER_5_5_0_COMPRESSED: Final = bytes.fromhex(
    "78da554f4d4bc340105dfd091e3d85819e5c4b36151bf6a6d096801f58438b88844d3ac660925d7637871272f36779f38f39a920741e7379"
    "c37bf31e632ceea1d05debd1829c71705e79dca075956e41461c7cd520918d0129e6e1ff888131764a1b4fd68b74fd3229edcfb7311808c2"
    "75f09c3cacee16597ab30a7ab82007a74a9cfabd4190b04c968f30eacfd3dbad08a32026cc8f34e3f5ec1544381d21e46cfc096fc49ed07e"
    "f590b7aa19bd72ab3fd15e2ae05074d626bb7b4549fb50863c9262e0b0abacdf837c57b5430e6874f171dc843aba421f82655959eb5cd559"
    "46765e9baa20f22fe381f0aa7eeab04307f26af805edfb5704"
)
"""The same registration compressed. 5.3.3 writes the same bytes."""

MAPPING: Final = TopicMapping("TBW102", "broker-a", 4, 1_700_000_000_002, current_ids=((0, 0), (2, 1)))
VERSION: Final = DataVersion(2, 1_700_000_000_001, 3)
RETRY: Final = "%RETRY%grüppe"
TOPICS: Final = {RETRY: QueueData(1, 1, 6, 1), "TBW102": QueueData(8, 8, 7)}

E11_PLAIN: Final = bytes.fromhex(
    "000000387b22636f756e746572223a332c22737461746556657273696f6e223a302c2274696d657374616d70223a31373030303030303030"
    "3030317d000000020000001a5442573130322038203820372053494e474c455f544147207b7d0000001a546f706963412038203820362053"
    "494e474c455f544147207b7d000000025b5d00000000"
)
"""The plain content of the specification's example E11 of a compressed body."""

E11: Final = bytes.fromhex(
    "78da636060b0a8564ace2fcd2b492d52b232d6512a2e492c490d4b2d2acecccf53b232d0512ac9cc4d050ae6162859199a1bc081612d0303"
    "0313104b8538851b1a18295800a1b942b0a79fbb8f6b7c88a3bb42752d5836bf2033d9112c6b8621cb141d0b24190066d620e1"
)
"""The same, compressed as on the wire."""

E11_CRC32: Final = 458_932_333

BROKER_4_9_7: Final = (
    b'{"filterServerList":["10.0.0.1:30000"],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,'
    b'"timestamp":1700000000001},"topicConfigTable":{"TBW102":{"order":false,"perm":7,"readQueueNums":8,'
    b'"topicFilterType":"SINGLE_TAG","topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}}}}'
)
BROKER_4_9_7_COMPRESSED: Final = bytes.fromhex(
    "78da63606050af564ace2fcd2b492d52b232d6512ac9cc4d2d2e49cc2d50b23234378003c35a0606064620160f710a37343052b000427385"
    "604f3f771fd7f8104777a09450b492a1811e081a5a19833429c502005b5b153b"
)
"""With five fields for each topic, and nothing after the filter list."""
