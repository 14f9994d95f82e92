"""What does reading a broker's registration of 10,000 topics cost, beside the standard library's JSON parser on it?

One process, in turn, so that other load affects all alike. `integer keys` is the JSON body of a
broker with one static topic, which is not JSON; `lenient` has single quotes throughout, at the lenient reader's size
limit, and its ratio is to the parser on as many characters.

    .venv/bin/python -m benchmarks.wire_bodies [--topics 10000] [--seconds 10]

Result, 2026-11-18, two shared cores, Python 3.11.7:

    a registration of 10000 topics
      json.loads        2123675 bytes     13.9 ms   1.00 x json.loads
      json form         2123675 bytes     17.6 ms   1.27 x json.loads
      integer keys      2123671 bytes     35.2 ms   2.54 x json.loads
      compressed          28458 bytes     13.0 ms   0.94 x json.loads
      json.loads small  1027398 bytes      6.5 ms   1.00 x json.loads
      lenient           1027394 bytes    162.1 ms  24.80 x json.loads

So reading a standard body costs a quarter more than parsing it, and one static topic costs a second parse.
"""

import argparse
import json
import statistics
import time
import zlib
from collections.abc import Callable
from typing import Any

from routebook.protocol.body_json import MAX_LENIENT_BYTES
from routebook.protocol.registration_body import RegistrationBody, read_registration_in_steps

VERSION = 513
DATA_VERSION = b'{"counter":3,"stateVersion":0,"timestamp":1700000000001}'
Read = Callable[[], Any]


def names(topics: int) -> list[str]:
    return [f"orders-of-region-{number:05}" for number in range(topics)]


def json_body(topics: int) -> bytes:
    """As 5.5.0 writes it, including fields that are not used."""
    table = {
        name: {
            "attributes": {"+message.type": "NORMAL"},
            "order": False,
            "perm": 6,
            "readQueueNums": 8 + number % 3,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        for number, name in enumerate(names(topics))
    }
    wrapper = {
        "dataVersion": json.loads(DATA_VERSION),
        "mappingDataVersion": json.loads(DATA_VERSION),
        "topicConfigTable": table,
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {"T": {"bname": "b", "currIdMap": {"0": 0, "2": 1}, "topic": "T"}},
    }
    body = {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    return json.dumps(body, separators=(",", ":")).encode()


def with_integer_keys(body: bytes) -> bytes:
    return body.replace(b'{"0":0,"2":1}', b"{0:0,2:1}")


def compressed_body(topics: int) -> bytes:
    texts = [
        f'{name} {8 + number % 3} 8 6 SINGLE_TAG {{"+message.type":"NORMAL"}}'
        for number, name in enumerate(names(topics))
    ]
    mapping = b'{"bname":"b","currIdMap":{0:0,2:1},"topic":"T"}'
    parts = [block(DATA_VERSION), number_of(topics), *(block(text.encode()) for text in texts)]
    return zlib.compress(b"".join([*parts, block(b"[]"), number_of(1), block(mapping)]), 9)


def number_of(value: int) -> bytes:
    return value.to_bytes(4, "big")


def block(content: bytes) -> bytes:
    return number_of(len(content)) + content


def read(body: bytes, *, compressed: bool = False) -> RegistrationBody:
    steps = read_registration_in_steps(body, version=VERSION, now_ms=0, compressed=compressed)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: RegistrationBody = end.value
            return found


def in_turns(readers: dict[str, Read], seconds: float) -> dict[str, float]:
    """Median milliseconds of each."""
    taken: dict[str, list[float]] = {name: [] for name in readers}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, reader in readers.items():
            start = time.perf_counter()
            reader()
            taken[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    body = json_body(options.topics)
    keyed, squeezed = with_integer_keys(body), compressed_body(options.topics)
    fitting = json_body(options.topics * MAX_LENIENT_BYTES // len(body) - 100)
    quoted = with_integer_keys(fitting).replace(b'"', b"'")
    assert read(body) == read(keyed)
    assert read(quoted).topics == read(fitting).topics
    assert read(squeezed, compressed=True).topics == read(body).topics
    readers: dict[str, Read] = {
        "json.loads": lambda: json.loads(body),
        "json form": lambda: read(body),
        "integer keys": lambda: read(keyed),
        "compressed": lambda: read(squeezed, compressed=True),
        "json.loads small": lambda: json.loads(fitting),
        "lenient": lambda: read(quoted),
    }
    sizes = dict(zip(readers, map(len, (body, body, keyed, squeezed, fitting, quoted)), strict=True))
    medians = in_turns(readers, options.seconds)
    print(f"a registration of {options.topics} topics")
    for name, median in medians.items():
        bare = medians["json.loads small" if name in ("lenient", "json.loads small") else "json.loads"]
        print(f"  {name:16} {sizes[name]:8} bytes {median:8.1f} ms {median / bare:6.2f} x json.loads")


if __name__ == "__main__":
    main()
