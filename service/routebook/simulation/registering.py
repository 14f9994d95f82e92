"""The bytes by which a broker announces itself, as 5.x writes them."""

import json
import zlib
from collections.abc import Mapping

from routebook.model.data_version import DataVersion
from routebook.model.topic import QueueData
from routebook.wire.command import Ext
from routebook.wire.fields import write_fields

_CRC_BITS = 0x7FFFFFFF
"""Java keeps 31 of them."""


def registration_body(version: DataVersion, topics: Mapping[str, QueueData]) -> bytes:
    written = {
        "counter": version.counter,
        "stateVersion": version.state_version,
        "timestamp": version.timestamp,
    }
    wrapper = {
        "dataVersion": written,
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": version.timestamp},
        "topicConfigTable": {name: _topic(name, queue) for name, queue in topics.items()},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    body = {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def registration_ext(
    body: bytes, *, cluster: str, broker: str, broker_id: int, address: str, timeout_ms: int | None
) -> Ext:
    host, _, port = address.rpartition(":")
    return write_fields(
        {
            "brokerName": broker,
            "brokerAddr": address,
            "clusterName": cluster,
            "haServerAddr": f"{host}:{int(port) + 1}",
            "brokerId": broker_id,
            "heartbeatTimeoutMillis": timeout_ms,
            "enableActingMaster": False,
            "compressed": False,
            "bodyCrc32": zlib.crc32(body) & _CRC_BITS,
        }
    )


def _topic(name: str, queue: QueueData) -> dict[str, object]:
    return {
        "attributes": {},
        "order": False,
        "perm": queue.perm,
        "readQueueNums": queue.read_queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": queue.flags,
        "writeQueueNums": queue.write_queues,
    }
