"""103, 104, 322, 901, 904: what brokers say of themselves, and ask of their group."""

import asyncio
import hashlib
import time
from typing import Final

from routebook import __version__
from routebook.model.broker import Registration, RegistrationResult
from routebook.model.topic import ORDER_TOPIC_NAMESPACE
from routebook.registry.registry import Registry
from routebook.remoting_api.body_reader import BodyReader
from routebook.remoting_api.handlers.asking import Asking
from routebook.remoting_api.reply import Reply
from routebook.replica.pick_up import pick_up_member_group
from routebook.settings import LiveSettings
from routebook.wire.bodies.answers import encode_data_version, encode_kv_table, encode_member_group
from routebook.wire.bodies.questions import read_data_version
from routebook.wire.codes import ResponseCode
from routebook.wire.command import Request
from routebook.wire.fields import read_boolean, read_int, read_long, write_fields

NO_CODE_SET: Final = "not set any response code"
"""What the reference says beside the success of 901."""
DIGEST_LETTERS: Final = 32
"""128 bits are enough to keep with every instance."""
MAX_DATA_VERSION_BYTES: Final = 4_096
"""A version has some 80."""
LONGEST_TIMEOUT_MS: Final = 10 * 365 * 86_400_000
"""A broker may name any; beyond ten years it would only test the arithmetic of the store."""


class BrokerHandlers:
    def __init__(self, registry: Registry, live: LiveSettings, reader: BodyReader) -> None:
        self._registry = registry
        self._live = live
        self._reader = reader

    async def register(self, asking: Asking) -> Reply:
        cluster, broker = asking.required("clusterName"), asking.required("brokerName")
        broker_id = asking.required_long("brokerId")
        asking.required("brokerAddr")
        digest = _digest_of(asking.request)
        result = await self._registry.touch(
            cluster, broker, broker_id, digest, asking.caller, connection=asking.connection
        )
        if result is None:
            registration = await self._read(asking, cluster, broker, broker_id)
            result = await self._registry.register(
                registration, asking.caller, body_digest=digest, connection=asking.connection
            )
        return self._registered(result)

    async def _read(self, asking: Asking, cluster: str, broker: str, broker_id: int) -> Registration:
        request, ext = asking.request, asking.request.ext
        body = await self._reader.read(
            request.body,
            version=request.version,
            now_ms=_now_ms(),
            compressed=read_boolean(ext, "compressed"),
            body_crc32=read_int(ext, "bodyCrc32", 0),
            max_inflated_bytes=self._live.current.max_frame_bytes,
        )
        timeout_ms = read_long(ext, "heartbeatTimeoutMillis", None)
        return Registration(
            cluster=cluster,
            broker=broker,
            broker_id=broker_id,
            address=asking.required("brokerAddr"),
            ha_address=asking.text("haServerAddr") or "",
            zone=asking.text("__ZONE_NAME"),
            timeout_ms=None if timeout_ms is None else min(max(timeout_ms, 0), LONGEST_TIMEOUT_MS),
            acting_master=read_boolean(ext, "enableActingMaster") if asking.text("enableActingMaster") else None,
            data_version=body.data_version,
            topics=body.topics,
            table_keys=body.table_keys,
            mappings=body.mappings,
            filters=body.filters,
        )

    def _registered(self, result: RegistrationResult) -> Reply:
        ext = write_fields(
            {"haServerAddr": result.master_ha_address or None, "masterAddr": result.master_address or None}
        )
        ordered = None
        if self._live.current.return_order_topic_config_to_broker:
            ordered = self._registry.view.kv.get(ORDER_TOPIC_NAMESPACE)
        return Reply(ext=ext, body=b"" if ordered is None else encode_kv_table(ordered))

    async def unregister(self, asking: Asking) -> Reply | None:
        """Answered when it is queued; what this connection says next waits until it has taken effect."""
        taken_effect = self._registry.depart(
            asking.text("clusterName") or "",
            asking.text("brokerName") or "",
            read_long(asking.request.ext, "brokerId", 0),
            asking.text("brokerAddr") or "",
            asking.caller,
            connection=asking.connection,
        )
        if taken_effect is None:
            return Reply(ResponseCode.SYSTEM_ERROR)
        asking.answer_now(Reply())
        await asyncio.wait([taken_effect])
        return None

    async def query_data_version(self, asking: Asking) -> Reply:
        cluster, address = asking.required("clusterName"), asking.required("brokerAddr")
        asked = read_data_version(asking.body_within(MAX_DATA_VERSION_BYTES), now_ms=_now_ms())
        changed, stored = await self._registry.query_data_version(cluster, address, asked, asking.caller)
        body = b"" if stored is None else encode_data_version(stored)
        return Reply(ext=write_fields({"changed": changed}), body=body)

    async def heartbeat(self, asking: Asking) -> Reply:
        await self._registry.heartbeat_address(
            asking.required("clusterName"), asking.required("brokerAddr"), asking.caller
        )
        return Reply()

    async def member_group(self, asking: Asking) -> Reply:
        cluster, broker = asking.text("clusterName"), asking.text("brokerName")
        group = pick_up_member_group(self._registry.view, cluster or "", broker or "")
        body = encode_member_group(broker, cluster, group.addresses)
        return Reply(remark=NO_CODE_SET, body=body)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _digest_of(request: Request) -> str:
    """Of all that decides what the request does. The release belongs to it: another one may read the same body in
    another way.

    SHA-256, because processors have instructions for it: the body of 10,000 topics takes 1 ms, and 2 to 3 ms by BLAKE2.
    """
    digest = hashlib.sha256(f"{__version__} {request.version}".encode())
    for name, value in sorted((request.ext or {}).items()):
        for part in (name.encode(), value.encode()):
            digest.update(b"%d:" % len(part) + part)
    digest.update(request.body)
    return digest.hexdigest()[:DIGEST_LETTERS]
