"""Frames as a Java broker and client of 5.5.0 write them, intentionally without the product's own code."""

import hmac
import json
import socket
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

CLIENT_VERSION = 513
FIRST_OPAQUE = 100_000
"""Six digits, which the load generator overwrites."""
CLUSTER = "DefaultCluster"
LIFE_MS = 3_600_000
"""Longer than any benchmark, so that no broker expires during one."""


def signed(request: bytes, access_key: str, secret: str) -> bytes:
    """The same request as RocketMQ's ACL hook would send it."""
    header, body = json.loads(request[8 : -len(body_of(request)) or None]), body_of(request)
    ext = header["extFields"] | {"AccessKey": access_key}
    content = "".join(value for _, value in sorted(ext.items())).encode() + body
    signature = b64encode(hmac.digest(secret.encode(), content, "sha1")).decode()
    return frame(header["code"], ext | {"Signature": signature}, body)


def frame(code: int, ext: dict[str, str], body: bytes = b"") -> bytes:
    fields = {
        "code": code,
        "extFields": ext,
        "flag": 0,
        "language": "JAVA",
        "opaque": FIRST_OPAQUE,
        "serializeTypeCurrentRPC": "JSON",
        "version": CLIENT_VERSION,
    }
    header = json.dumps(fields, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def lookup(topic: str) -> bytes:
    return frame(105, {"topic": topic})


def registration(broker: str, address: str, topics: list[str], *, counter: int = 1, changed: int = 0) -> bytes:
    """The same arguments give the same bytes, so a repeated registration changes nothing. `counter` is the data
    version's; the first `changed` topics get other queue numbers.
    """
    table: dict[str, Any] = {
        topic: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": 16 if number < changed else 8,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        for number, topic in enumerate(topics)
    }
    version = {"counter": counter, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    wrapper = {
        "dataVersion": version,
        "mappingDataVersion": version,
        "topicConfigTable": table,
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    fields: dict[str, Any] = {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    body = json.dumps(fields, separators=(",", ":")).encode()
    ext = {
        "brokerId": "0",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        "clusterName": CLUSTER,
        "brokerAddr": address,
        "enableActingMaster": "false",
        "haServerAddr": address.replace(":10911", ":10912"),
        "heartbeatTimeoutMillis": str(LIFE_MS),
        "compressed": "false",
        "brokerName": broker,
    }
    return frame(103, ext, body)


def unregistration(broker: str, address: str) -> bytes:
    return frame(104, {"brokerName": broker, "brokerAddr": address, "clusterName": CLUSTER, "brokerId": "0"})


class Peer:
    """One connection that sends a request and waits for its answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")

    def ask(self, request: bytes) -> bytes:
        """Returns the whole answer. An answer other than success ends the benchmark."""
        self._socket.sendall(request)
        prefix = self._stream.read(8)
        if len(prefix) < 8:
            raise SystemExit("A server closed the connection instead of answering.")
        length, header_length = struct.unpack(">II", prefix)
        rest = self._stream.read(length - 4)
        header = json.loads(rest[:header_length])
        if header["code"] != 0:
            raise SystemExit(f"A server answered {header}.")
        return prefix + rest

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def body_of(frame: bytes) -> bytes:
    return frame[8 + int.from_bytes(frame[5:8], "big") :]


class Fleet:
    """The masters of some groups, each with its own connection, since a lost connection removes its brokers."""

    def __init__(self, port: int, topics_of: dict[str, list[str]]) -> None:
        self._registrations = list(_registrations(topics_of))
        self._peers = [Peer(port) for _ in self._registrations]

    def register(self) -> None:
        """Repeats the registrations, which also keeps the connections from becoming idle."""
        for peer, request in zip(self._peers, self._registrations, strict=True):
            peer.ask(request)

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


def _registrations(topics_of: dict[str, list[str]]) -> Iterator[bytes]:
    for number, (broker, topics) in enumerate(topics_of.items()):
        yield registration(broker, f"127.0.{number // 250}.{number % 250 + 1}:10911", topics)
