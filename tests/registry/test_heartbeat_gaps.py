"""Heartbeat gaps: returned by the store's scripts, counted by seat, appended to the stream `pulse` once a minute."""

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from routebook.model.broker import Seat
from routebook.registry.heartbeat_gaps import BUCKETS, bucket_of
from routebook.store.history import append_heartbeat_gaps
from routebook.store.namespace import Namespace
from tests.reference.build import A, registration
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.registering import register


async def read_stream(namespace: Namespace) -> list[tuple[str, dict[str, Any]]]:
    entries = await namespace.client.call("XRANGE", namespace.keys.pulse, "-", "+")
    return [(entry_id.decode(), json.loads(fields[1])) for entry_id, fields in entries]


async def move_back_last_heartbeat(worker: InProcessWorker, instance_name: str, ms: int) -> None:
    await worker.client.call("ZINCRBY", worker.namespace.keys.table("heartbeats"), -ms, instance_name)


@given(st.integers(0, 2**40))
def test_a_gap_lies_between_the_edges_of_its_bucket(gap_ms: int) -> None:
    bucket = bucket_of(gap_ms)
    assert 0 <= bucket < BUCKETS
    assert bucket == 0 or gap_ms > 100 * 2 ** ((bucket - 1) / 8)
    assert bucket == BUCKETS - 1 or gap_ms <= 100 * 2 ** (bucket / 8)


def test_a_gap_equal_to_an_edge_belongs_to_the_lower_bucket() -> None:
    assert [bucket_of(gap) for gap in (0, 100, 101, 109, 200, 201)] == [0, 0, 1, 1, 8, 9]
    assert bucket_of(30_000) == math.ceil(8 * math.log2(300))


async def test_every_kind_of_heartbeat_counts_for_its_seat(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        sent = registration()
        await register(worker.registry, sent)
        await move_back_last_heartbeat(worker, sent.instance_name, 30_000)
        assert (await register(worker.registry, sent)).status == "unchanged"
        await move_back_last_heartbeat(worker, sent.instance_name, 60_000)
        await worker.registry.heartbeat("east", "broker-a", 0, CALLER)
        await move_back_last_heartbeat(worker, sent.instance_name, 400_000)
        await worker.registry.heartbeat_address("east", A, CALLER)
        await move_back_last_heartbeat(worker, sent.instance_name, 30_000)
        await worker.registry.query_data_version("east", A, None, CALLER)
        await move_back_last_heartbeat(worker, sent.instance_name, 30_000)
        changed = registration(ha_address="127.0.0.1:9")
        assert (await register(worker.registry, changed)).status == "changed"
        await worker.registry.heartbeat_gaps.flush()
        [(entry_id, entry)] = await read_stream(worker.namespace)
        assert entry_id.endswith("-1")
        assert (entry["v"], entry["kind"], entry["worker"]) == (1, "gaps", worker.name)
        assert entry["from_ms"] <= entry["to_ms"] <= int(entry_id.partition("-")[0])
        [row] = entry["rows"]
        assert (row["c"], row["b"], row["i"], row["n"]) == ("east", "broker-a", 0, 5)
        assert 400_000 <= row["max"] < 460_000
        assert sum(count for _, count in row["h"]) == 5
        assert [bucket for bucket, _ in row["h"]] == sorted({bucket for bucket, _ in row["h"]})


async def test_the_first_heartbeat_of_an_incarnation_has_no_gap(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        await worker.registry.unregister("east", "broker-a", 0, CALLER, address=A)
        await worker.registry.heartbeat_address("east", A, CALLER)
        await register(worker.registry, registration())
        await worker.registry.heartbeat_gaps.flush()
        assert await read_stream(worker.namespace) == []


async def test_each_gap_is_written_once(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        for _ in range(3):
            await worker.registry.heartbeat("east", "broker-a", 0, CALLER)
            await worker.registry.heartbeat_gaps.flush()
        await worker.registry.heartbeat_gaps.flush()
        entries = await read_stream(worker.namespace)
        assert [entry_id.partition("-")[2] for entry_id, _ in entries] == ["1", "2", "3"]
        assert [entry["rows"][0]["n"] for _, entry in entries] == [1, 1, 1]


async def test_many_seats_are_written_in_several_entries(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        names = [f"{n}-" + "ü" * 290 for n in range(1500)]
        for name in names:
            worker.registry.heartbeat_gaps.record(Seat("east", name, 0), 30_000)
        await worker.registry.heartbeat_gaps.flush()
        entries = await worker.client.call("XRANGE", worker.namespace.keys.pulse, "-", "+")
        assert len(entries) > 1
        assert all(len(fields[1]) <= 256 * 1024 for _, fields in entries)
        rows = [row for _, fields in entries for row in json.loads(fields[1])["rows"]]
        assert [row["b"] for row in rows] == names


async def test_the_stream_is_limited_in_bytes(namespace: Namespace) -> None:
    rows = ["1" * 1000]
    for _ in range(300):
        await append_heartbeat_gaps(namespace, "worker", rows, span_ms=60_000, max_bytes=20_000)
    kept = await namespace.client.call("XLEN", namespace.keys.pulse)
    assert kept < 60
    newest = await namespace.client.call("XREVRANGE", namespace.keys.pulse, "+", "-", "COUNT", 1)
    assert newest[0][0].endswith(b"-300")
