"""Brokers that reconnect all the time, and malformed frames: faults 21 and 22 of `docs/reliability.md`."""

import asyncio
import json
import os
import socket
import struct
import sys
import time

import psutil  # type: ignore[import-untyped]
import pytest

from routebook.store.history import changes_between
from tests.architecture.sources import ROOT
from tests.faults.frame_flood import Sent
from tests.faults.laboratory import Laboratory
from tests.faults.traffic import Worker
from tests.protocol.fuzzing.run import fuzz
from tests.protocol.plain_frames import framed
from tests.support.figures import Figures
from tests.support.peers import Peer
from tests.support.waiting import until

pytestmark = pytest.mark.slow

IN_CHAOS = "ROUTEBOOK_TEST_FIGURES" in os.environ
FUZZ_S = 120.0 if IN_CHAOS else 20.0
DIRECT_FRAMES = 10_000_000 if IN_CHAOS else 200_000
DIRECT_S = 240.0
DIRECT_PROCESSES = 2
PROPERTY_S = 30.0
"""For the fuzzer that compares several ways of reading the same bytes, which takes twenty times as long."""
STALL_S = 0.05


def cpu_seconds(worker: Worker) -> float:
    times = psutil.Process(worker.process.process.pid).cpu_times()
    return float(times.user + times.system)


async def test_brokers_that_reconnect_every_second_cost_little(laboratory: Laboratory, figure: Figures) -> None:
    await laboratory.start(workers=2, brokers=2, remoting=2, http=1, per_second=10)
    for number in range(20):
        laboratory.start_broker(f"restless-{number}", period_s=1.0, churn=0, reconnects=True)
    for broker in laboratory.brokers.values():
        broker.churn = 0
    await asyncio.gather(*(broker.registered.wait() for broker in laboratory.brokers.values()))
    await laboratory.calm(3)
    before = [cpu_seconds(worker) for worker in laboratory.workers]
    version = (await changes_between(laboratory.namespace, 0, 100_000))[-1].version
    began = time.monotonic()
    await laboratory.calm(20)
    spent = [cpu_seconds(worker) - used for worker, used in zip(laboratory.workers, before, strict=True)]
    elapsed = time.monotonic() - began
    registrations = [one for one in laboratory.recording.of_kind("registration") if one.sent > began]
    written = await changes_between(laboratory.namespace, version, 100_000)
    await laboratory.prove(required=("I1", "I4", "I5", "I6", "I8", "I9"))
    figure("registrations over a new connection", len(registrations), at_least=200)
    figure("changes written to the history", len(written), exactly=0)
    figure("processor use of the busiest worker", 100 * max(spent) / elapsed, "% of a core", at_most=30)


async def delays_above(worker: Worker, seconds: float) -> float:
    """How often the worker's event loop was late by more than this."""
    text = (await asyncio.to_thread(worker.process.get_admin, "/metrics")).text
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[:1] != "#"}
    within = values[f'routebook_loop_delay_seconds_bucket{{le="{seconds:g}"}}']
    return values["routebook_loop_delay_seconds_count"] - within


async def test_fuzzed_frames_through_sockets_neither_stop_nor_stall_a_worker(
    laboratory: Laboratory, figure: Figures, seed: int
) -> None:
    """From a process of its own, so that the clients of the laboratory measure the worker and not the fuzzer."""
    # The usual limits would slow down the fuzzer, which has one address.
    names = ("max_requests_per_second", "max_requests_per_second_per_address", "max_lookups_per_second_per_address")
    laboratory.settings |= dict.fromkeys(names, 1_000_000)
    await laboratory.start(workers=1, brokers=4, remoting=2, http=1, per_second=20)
    (worker,) = laboratory.workers
    await laboratory.calm(2)
    stalls = await delays_above(worker, STALL_S)
    command = ("-m", "tests.faults.frame_flood", worker.remoting, str(seed), str(FUZZ_S))
    flood = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    try:
        output, _ = await asyncio.wait_for(flood.communicate(), FUZZ_S + 60)
    finally:
        if flood.returncode is None:
            flood.kill()
    sent = Sent(**json.loads(output))
    stalled = await delays_above(worker, STALL_S) - stalls
    violations = await laboratory.metric(worker, "routebook_remoting_violations_total")
    await laboratory.calm(1)
    await laboratory.prove(required=("I1", "I5", "I6", "I8", "I9"))
    figure("frames read through sockets", sent.frames, at_least=int(500 * FUZZ_S))
    figure("connections, each ended by a refused frame", sent.connections, at_least=int(FUZZ_S))
    figure("connections neither answered nor closed", sent.unanswered, exactly=0)
    figure("refusals counted", violations, at_least=sent.connections)
    figure("crashes", int(worker.process.process.poll() is not None) + worker.process.log.count("Traceback"), exactly=0)
    figure("stalls of the event loop above 50 ms", stalled, at_most=0)


async def test_fuzzed_frames_into_the_protocol_are_read_to_the_one_that_is_refused(figure: Figures, seed: int) -> None:
    """Frames like those above without sockets, so that there are ten million of them."""
    arguments = (str(DIRECT_S), str(DIRECT_FRAMES // DIRECT_PROCESSES))
    floods = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.faults.frame_flood", "protocol", str(seed + number), *arguments),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        for number in range(DIRECT_PROCESSES)
    ]
    try:
        outputs = await asyncio.wait_for(asyncio.gather(*(flood.communicate() for flood in floods)), DIRECT_S + 60)
    finally:
        for flood in floods:
            if flood.returncode is None:
                flood.kill()
    assert [flood.returncode for flood in floods] == [0] * DIRECT_PROCESSES
    sent = [Sent(**json.loads(output)) for output, _ in outputs]
    figure("frames read without sockets", sum(one.frames for one in sent), at_least=DIRECT_FRAMES)
    figure("of these refused", sum(one.connections for one in sent), exactly=sum(one.frames for one in sent) // 201)
    figure("longest read of 201 frames", max(one.longest_ms for one in sent), "ms", at_most=50)


def test_fuzzed_inputs_into_the_protocol_find_nothing(figure: Figures, seed: int) -> None:
    """Every property of the protocol's code holds: other chunks and templates give the same events, and so on."""
    report = fuzz(seed, 10_000_000, seconds=PROPERTY_S)
    figure("inputs of the property fuzzer", report.inputs, at_least=10_000)
    figure("longest", max(target.worst_ms for target in report.targets.values()), "ms")
    figure("growth of the memory", report.growth_bytes / 2**20, "MiB", at_most=32)


LOOKUP = b'{"code":105,"opaque":1,"extFields":{"topic":"all"}}'
MALFORMED = {
    "a header longer than the frame": struct.pack(">iI", 20, 100) + bytes(16),
    "a negative length": struct.pack(">i", -5) + bytes(40),
    "a negative header length": struct.pack(">iI", 20, 0x00FFFFFF) + bytes(16),
    "an unknown serialisation": struct.pack(">iI", 4 + len(LOOKUP), 7 << 24 | len(LOOKUP)) + LOOKUP,
    "deep JSON": framed(b"[" * 5000),
    "a header that is no object": framed(b"[1]"),
    "a length of zero": struct.pack(">i", 0) + bytes(40),
    "a length of one GiB": struct.pack(">i", 1 << 30) + bytes(40),
}


async def test_each_malformed_frame_closes_its_connection_and_is_counted(
    laboratory: Laboratory, figure: Figures
) -> None:
    await laboratory.start(workers=1, brokers=4)
    (worker,) = laboratory.workers
    closed = 0
    for what, data in MALFORMED.items():
        before = await laboratory.metric(worker, "routebook_remoting_violations_total")
        async with await Peer.connect(worker.remoting) as peer:
            # A good request first, so that the frame does not count as the opening of the connection.
            assert (await peer.ask(105, {"topic": "all"})).code == 0
            peer.write(data)
            assert await peer.is_closed(), what
        closed += 1
        counted = await laboratory.metric(worker, "routebook_remoting_violations_total") - before
        assert counted == 1, f"{what}: {counted}"
    # A key that appears twice is legal JSON: the last one counts, as in RocketMQ's own parser.
    async with await Peer.connect(worker.remoting) as peer:
        peer.write(framed(b'{"code":999,"code":105,"opaque":1,"extFields":{"topic":"none","topic":"all"}}'))
        assert (await peer.answer()).code == 0
    await laboratory.prove(required=("I1", "I5"))
    figure("kinds of malformed frames refused and counted", closed, exactly=len(MALFORMED))


async def test_a_client_that_never_reads_is_disconnected_at_the_buffer_limit(
    laboratory: Laboratory, figure: Figures
) -> None:
    """It requests much more than the buffers of the system and of the worker hold."""
    laboratory.settings["incomplete_frame_timeout_ms"] = 3000
    await laboratory.start(workers=1, brokers=4)
    (worker,) = laboratory.workers
    for number in range(20):
        topics: dict[str, object] = {f"topic-{number}-{index}-{'x' * 60}": {} for index in range(200)}
        body = {"address": f"127.0.9.{number + 1}:10911", "topics": topics, "timeout_ms": 60_000}
        path = f"/v1/clusters/other/brokers/large-{number}/0"
        (await asyncio.to_thread(worker.process.put, path, body)).raise_for_status()
    process = psutil.Process(worker.process.process.pid)
    before, highest = process.memory_info().rss, 0
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, _, port = worker.remoting.rpartition(":")
        client.connect((host, int(port)))
        client.setblocking(False)
        async with await Peer.connect(worker.remoting) as maker:
            length = len((await maker.ask(206)).body)
            question = maker.request(206)
        began = time.monotonic()
        sending = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(client, question * 2000))

        async def is_cut() -> bool:
            nonlocal highest
            highest = max(highest, process.memory_info().rss)
            return await laboratory.metric(worker, "routebook_remoting_closed_total") >= 1

        await until(is_cut, every_s=0.05)
        took_s = time.monotonic() - began
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    await laboratory.prove(required=("I1", "I5"))
    figure("answers requested", 2000 * length / 2**20, "MiB", at_least=100)
    figure("disconnected after", took_s, "s")
    figure("memory growth of the worker", max(highest - before, 0) / 2**20, "MiB", at_most=16)
