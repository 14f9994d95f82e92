"""Heartbeat gaps: taken from the store, summed up by seat, written down once a minute."""

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from routebook.registry.heartbeat_gaps import BUCKETS, bucket_of
from routebook.store.history import append_heartbeat_gaps
from routebook.store.namespace import Namespace
from tests.reference.build import A, registration
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.registering import register


async def pulse_of(namespace: Namespace) -> list[tuple[str, dict[str, Any]]]:
    entries = await namespace.client.call("XRANGE", namespace.keys.pulse, "-", "+")
    return [(entry_id.decode(), json.loads(fields[1])) for entry_id, fields in entries]


async def heard_before(worker: InProcessWorker, instance_name: str, ms: int) -> None:
    await worker.client.call("ZINCRBY", worker.namespace.keys.table("heartbeats"), -ms, instance_name)


@given(st.integers(0, 2**40))
def test_a_bucket_holds_what_its_formula_says(gap_ms: int) -> None:
    bucket = bucket_of(gap_ms)
    assert 0 <= bucket < BUCKETS
    assert bucket == 0 or gap_ms > 100 * 2 ** ((bucket - 1) / 8)
    assert bucket == BUCKETS - 1 or gap_ms <= 100 * 2 ** (bucket / 8)


def test_the_edges_of_buckets() -> None:
    assert [bucket_of(gap) for gap in (0, 100, 101, 109, 200, 201)] == [0, 0, 1, 1, 8, 9]
    assert bucket_of(30_000) == math.ceil(8 * math.log2(300))


async def test_every_kind_of_a_sign_of_life_counts_for_its_seat(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        said = registration()
        await register(worker.registry, said)
        await heard_before(worker, said.instance_name, 30_000)
        assert (await register(worker.registry, said)).status == "unchanged"
        await heard_before(worker, said.instance_name, 60_000)
        await worker.registry.heartbeat("east", "broker-a", 0, CALLER)
        await heard_before(worker, said.instance_name, 400_000)
        await worker.registry.heartbeat_address("east", A, CALLER)
        await heard_before(worker, said.instance_name, 30_000)
        await worker.registry.query_data_version("east", A, None, CALLER)
        await heard_before(worker, said.instance_name, 30_000)
        changed = registration(ha_address="127.0.0.1:9")
        assert (await register(worker.registry, changed)).status == "changed"
        await worker.registry.pulse.write_down()
        [(entry_id, entry)] = await pulse_of(worker.namespace)
        assert entry_id.endswith("-1")
        assert (entry["v"], entry["kind"], entry["worker"]) == (1, "gaps", worker.name)
        assert entry["from_ms"] <= entry["to_ms"] <= int(entry_id.partition("-")[0])
        [row] = entry["rows"]
        assert (row["c"], row["b"], row["i"], row["n"]) == ("east", "broker-a", 0, 5)
        assert 400_000 <= row["max"] < 460_000
        assert sum(count for _, count in row["h"]) == 5
        assert [bucket for bucket, _ in row["h"]] == sorted({bucket for bucket, _ in row["h"]})


async def test_the_first_sign_of_life_of_a_stay_has_no_gap(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        await worker.registry.unregister("east", "broker-a", 0, CALLER, address=A)
        await worker.registry.heartbeat_address("east", A, CALLER)
        await register(worker.registry, registration())
        await worker.registry.pulse.write_down()
        assert await pulse_of(worker.namespace) == []


async def test_what_was_written_down_is_not_written_again(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        for _ in range(3):
            await worker.registry.heartbeat("east", "broker-a", 0, CALLER)
            await worker.registry.pulse.write_down()
        await worker.registry.pulse.write_down()
        entries = await pulse_of(worker.namespace)
        assert [entry_id.partition("-")[2] for entry_id, _ in entries] == ["1", "2", "3"]
        assert [entry["rows"][0]["n"] for _, entry in entries] == [1, 1, 1]


async def test_many_seats_are_several_entries(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        names = [f"{n}-" + "ü" * 290 for n in range(1500)]
        for name in names:
            worker.registry.pulse.heard("east", name, 0, 30_000)
        await worker.registry.pulse.write_down()
        entries = await worker.client.call("XRANGE", worker.namespace.keys.pulse, "-", "+")
        assert len(entries) > 1
        assert all(len(fields[1]) <= 256 * 1024 for _, fields in entries)
        rows = [row for _, fields in entries for row in json.loads(fields[1])["rows"]]
        assert [row["b"] for row in rows] == names


async def test_the_pulse_is_bounded_in_bytes(namespace: Namespace) -> None:
    rows = ["1" * 1000]
    for _ in range(300):
        await append_heartbeat_gaps(namespace, "worker", rows, span_ms=60_000, max_bytes=20_000)
    kept = await namespace.client.call("XLEN", namespace.keys.pulse)
    assert kept < 60
    newest = await namespace.client.call("XREVRANGE", namespace.keys.pulse, "+", "-", "COUNT", 1)
    assert newest[0][0].endswith(b"-300")
