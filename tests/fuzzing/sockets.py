"""Random and almost valid bytes on both ports."""

import random
import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from tests.protocol.fuzzing import frames
from tests.protocol.plain_frames import framed
from tests.runtime.running import Running

CODES = [
    100,
    101,
    102,
    103,
    104,
    105,
    106,
    205,
    206,
    216,
    217,
    219,
    224,
    304,
    311,
    312,
    313,
    318,
    319,
    322,
    327,
    901,
    904,
]
FIELDS = ["clusterName", "brokerName", "brokerId", "brokerAddr", "haServerAddr", "topic", "namespace", "key", "value"]
FIELDS += [
    "compressed",
    "bodyCrc32",
    "heartbeatTimeoutMillis",
    "enableActingMaster",
    "AccessKey",
    "Signature",
    "cluster",
]
TEXTS = [
    "",
    "a",
    "fuzz",
    "127.0.0.1:1",
    "0",
    "-1",
    "9" * 19,
    "9" * 40,
    "true",
    "\\u0000",
    "\\ud800",
    "x" * 400,
    "é",
    "%",
]
BODIES = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"\x00" * 20,
    b"a=b\n",
    b'{"topicConfigSerializeWrapper":{}}',
    b"{" * 200,
    b"\x78\x9c",
]

METHODS = [b"GET", b"PUT", b"POST", b"DELETE", b"HEAD", b"PATCH", b"OPTIONS", b"CONNECT", b"PRI", b"X" * 300, b""]
PATHS = [
    b"/v1/routes/T",
    b"/v1/status",
    b"/v1/changes?since=%00",
    b"/v1/clusters/c/brokers/b/0",
    b"/v1/kv/n/k",
    b"/",
    b"*",
]
PATHS += [b"/v1/topics/" + b"x" * 9000, b"/%", b"//", b"/..%2f", b"http://x/", b"/v1/changes?kind=a&kind=b", b"/\xff"]
HEADERS = [b"host: localhost", b"host:", b"content-length: 5", b"content-length: -1", b"content-length: 99999999999999"]
HEADERS += [b"transfer-encoding: chunked", b"transfer-encoding: gzip", b"expect: 100-continue", b"connection: upgrade"]
HEADERS += [
    b"upgrade: websocket",
    b"x: " + b"y" * 20_000,
    b"authorization: Bearer \xff",
    b"origin: null",
    b"last-event-id: x",
]
HEADERS += [b"authorization: Basic", b"content-type: x", b": ", b" folded", b"x-forwarded-for: 1"]
WAIT_S = 0.05


def fuzz_remoting(service: Running, source: random.Random, seconds: float) -> str:
    return _fuzz(service.remoting, source, seconds, _remoting_input)


def fuzz_http(service: Running, source: random.Random, seconds: float) -> str:
    address = urlsplit(service.http)
    return _fuzz(f"127.0.0.1:{address.port}", source, seconds, _http_input)


def _fuzz(address: str, source: random.Random, seconds: float, make: Callable[[random.Random], bytes]) -> str:
    end, number, answered = time.monotonic() + seconds, 0, 0
    host, _, port = address.rpartition(":")
    while time.monotonic() < end:
        number += 1
        answered += _send(("127.0.0.1" if host in ("0.0.0.0", "") else host, int(port)), make(source))
    assert answered, "no input was answered, so nothing was tested"
    return f"{number} connections, {answered} of them answered"


def _send(address: tuple[str, int], data: bytes) -> bool:
    """One connection. A refused or reset one is a fair answer; that the service lives is checked afterwards."""
    try:
        with socket.create_connection(address, timeout=5) as peer:
            peer.settimeout(WAIT_S)
            peer.sendall(data)
            return bool(peer.recv(65_536))
    except OSError:
        return False


def _remoting_input(source: random.Random) -> bytes:
    kind = source.randrange(4)
    if kind == 0:
        return frames.stream(source)
    if kind == 1:
        return frames.beginning(source)
    requests = b"".join(_request(source) for _ in range(source.randint(1, 4)))
    return requests if kind == 2 else frames.corrupted(source, requests)


def _request(source: random.Random) -> bytes:
    """A complete request with any code, fields and body."""
    names = source.sample(FIELDS, source.randrange(len(FIELDS)))
    ext = ",".join(f'"{name}":"{source.choice(TEXTS)}"' for name in names)
    version, flag = source.choice([0, 317, 413, 513]), source.choice([0, 0, 0, 2])
    header = f'{{"code":{source.choice(CODES)},"opaque":1,"flag":{flag},"version":{version},"extFields":{{{ext}}}}}'
    return framed(header.encode(), source.choice(BODIES))


def _http_input(source: random.Random) -> bytes:
    requests = []
    for _ in range(source.randint(1, 3)):
        line = b" ".join(
            [source.choice(METHODS), source.choice(PATHS), source.choice([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9"])]
        )
        headers = source.choices(HEADERS, k=source.randrange(6))
        body = source.choice(
            [b"", b"{}", b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"fffffffff\r\n", source.randbytes(30)]
        )
        requests.append(b"\r\n".join([line, b"host: localhost", *headers, b"", body]))
    data = b"".join(requests)
    return frames.corrupted(source, data) if source.random() < 0.3 else data
