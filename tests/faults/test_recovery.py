"""Operation and recovery: faults 30, 31, 33, 34 and 37 of `docs/reliability.md`."""

import asyncio
import json
import re
import time
from pathlib import Path

import pytest

from tests.attacks.attacked_service import ATTACKER, attacked_service, connect
from tests.attacks.test_remoting_admin import ATTACKS
from tests.faults.laboratory import Laboratory, percentile, seconds_until
from tests.faults.recording import CutOff
from tests.faults.traffic import SHARED_TOPIC, Link, Worker
from tests.remoting.port import register
from tests.support.figures import Figures
from tests.support.waiting import until

pytestmark = pytest.mark.slow

WITHOUT_DEATHS = ("I1", "I3", "I4", "I5", "I6", "I8", "I9")


async def test_clients_that_close_in_the_middle_of_a_request_affect_no_other_answer(
    laboratory: Laboratory, figure: Figures
) -> None:
    """They reset their connections after any byte of pipelined lookups and writes."""
    await laboratory.start(workers=2, brokers=12, remoting=6, http=3, per_second=50)
    closed = 0

    async def close_in_the_middle() -> None:
        nonlocal closed
        chosen = laboratory.random
        while not laboratory.is_stopping:
            worker = chosen.choice(laboratory.running_workers)
            broker = chosen.choice(list(laboratory.brokers.values()))
            if chosen.random() < 0.7:
                link = await Link.open(worker, "remoting")
                requests = [link.peer.request(105, {"topic": name}) for name in broker.topics]
                value = {"namespace": "cut", "key": broker.name, "value": str(closed)}
                requests.append(link.peer.request(100, value))
            else:
                link = await Link.open(worker, "http")
                body = json.dumps({"value": "x" * chosen.randrange(200)})
                head = (
                    f"PUT /v1/kv/cut/{broker.name} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                requests = [f"GET /v1/routes/{broker.topics[-1]} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()]
                requests.append((head + body).encode())
            chosen.shuffle(requests)
            whole = b"".join(requests)
            try:
                await link.peer.send(whole[: chosen.randint(1, len(whole))])
                if chosen.random() < 0.3:
                    # The answers are on their way.
                    await asyncio.sleep(chosen.random() * 0.003)
            finally:
                link.close()
            closed += 1
            # The writes of all together stay below what a worker follows within a second on a busy machine.
            await asyncio.sleep(0.01)

    began = time.monotonic()
    closing = [laboratory.spawn(close_in_the_middle()) for _ in range(4)]
    await laboratory.calm(12)
    for task in closing:
        task.cancel()
    await asyncio.gather(*closing, return_exceptions=True)
    await laboratory.calm(1)
    await laboratory.prove(required=WITHOUT_DEATHS)
    figure("connections closed in the middle", closed, at_least=1000)
    lookups = [one for one in laboratory.recording.lookups if one.sent >= began]
    own = [one for one in lookups if one.subject != SHARED_TOPIC]
    wrong = [one for one in own if set(one.brokers) != {one.subject.rpartition("-own-")[0]}]
    figure("answers to other clients", len(lookups), at_least=2000)
    figure("answers of another request", len(wrong), exactly=0)
    figure("lookups without an answer", sum(one.code is None for one in lookups), exactly=0)


async def breaks_of(worker: Worker, laboratory: Laboratory) -> float:
    return await laboratory.metric(worker, "routebook_feed_breaks_total")


@pytest.mark.parametrize("how", ["one entry deleted", "all entries trimmed"])
async def test_a_lost_entry_makes_the_worker_load_the_table_again(
    laboratory: Laboratory, figure: Figures, how: str
) -> None:
    # The brokers of the worker that is cut off must outlast that.
    laboratory.settings["broker_timeout_ms"] = 20_000
    await laboratory.start(workers=3, brokers=12)
    await laboratory.calm()
    worker, others = laboratory.workers[0], laboratory.workers[1:]
    client, changes = laboratory.namespace.client, laboratory.namespace.keys.changes
    assert worker.proxy
    before, cut_off = await breaks_of(worker, laboratory), time.monotonic()
    worker.proxy.stall()
    position = await client.call("XREVRANGE", changes, "+", "-", "COUNT", 1)
    await asyncio.sleep(3)
    missed = await client.call("XRANGE", changes, b"(" + position[0][0], "+")
    if how == "one entry deleted":
        await client.call("XDEL", changes, laboratory.random.choice(missed)[0])
    else:
        await client.call("XTRIM", changes, "MAXLEN", "=", 0)
    laboratory.churns = False
    await laboratory.calm(1)
    worker.proxy.heal()

    async def is_equal() -> bool:
        digests = set()
        for one in laboratory.workers:
            answer = await asyncio.to_thread(one.process.get, "/v1/status")
            digests.add((answer.json()["digest"], answer.json()["version"]))
        return len(digests) == 1

    took_s = await seconds_until(is_equal)
    laboratory.recording.cut_off.append(CutOff(worker.name, cut_off, time.monotonic()))
    laboratory.churns = True
    await laboratory.calm(3)
    figure("entries that the worker missed", len(missed), at_least=3)
    figure("loaded again after", took_s, "s", at_most=5)
    figure("gaps detected", await breaks_of(worker, laboratory) - before, at_least=1)
    figure("breaks of other workers", sum([await breaks_of(one, laboratory) for one in others]), exactly=0)
    await laboratory.prove(required=WITHOUT_DEATHS)


async def test_refused_administration_changes_nothing_and_is_audited(
    store_url: str, namespace_name: str, tmp_path: Path, figure: Figures
) -> None:
    flags = ("--bind-address", "0.0.0.0", "--remoting-config-updates", "true")
    rounds = 50
    async with (
        attacked_service(store_url, namespace_name, tmp_path, *flags) as service,
        await connect(service) as broker,
        await connect(service, source=ATTACKER) as attacker,
    ):
        assert (await register(broker)).code == 0

        def effect() -> tuple[object, ...]:
            status = service.get("/v1/status").json()
            answers = [service.get(path).text for path in ("/v1/topics", "/v1/brokers", "/v1/kv", "/v1/settings")]
            texts = [re.sub(r'"(heartbeat_age_ms|expires_in_ms)":[-\d]+', "", text) for text in answers]
            # The history may have got an entry of the service itself meanwhile, but none that came from the attacker.
            changes = service.get("/v1/changes", since=0, limit=1000).json()["changes"]
            by_attacker = [change for change in changes if change["source"].startswith(ATTACKER[0])]
            return (status["history"], status["digest"], str(by_attacker), *texts)

        def audited() -> float:
            lines = service.get_admin("/metrics").text.splitlines()
            wanted = 'routebook_audit_records_total{outcome="refused",port="remoting"}'
            return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(wanted))

        before, audited_before = await asyncio.to_thread(effect), await asyncio.to_thread(audited)
        codes = [(await attacker.ask(code, ext, body)).code for _ in range(rounds) for code, ext, body in ATTACKS]
        after, audited_after = await asyncio.to_thread(effect), await asyncio.to_thread(audited)
    figure("administrative requests", len(codes), exactly=rounds * len(ATTACKS))
    figure("of these answered with another code than 16", sum(code != 16 for code in codes), exactly=0)
    figure("audited", audited_after - audited_before, exactly=len(codes))
    different = [f"{was!r} became {now!r}" for was, now in zip(before, after, strict=True) if was != now]
    print(*different, sep="\n")
    figure("differences in the table and the settings", len(different), exactly=0)


async def test_a_reader_that_is_far_behind_affects_nothing_and_learns_the_lost_range(
    laboratory: Laboratory, figure: Figures
) -> None:
    laboratory.settings |= {"history_min_entries": 1000, "history_hard_limit": 1500}
    await laboratory.start(workers=2, brokers=12)
    client, keys = laboratory.namespace.client, laboratory.namespace.keys
    await client.call("HSET", keys.readers, "pipeline", f"5 {int(time.time() * 1000)}")
    await laboratory.calm(4)
    calm = percentile([one.took_s for one in laboratory.recording.lookups], 99)
    behind = time.monotonic()
    for broker in laboratory.brokers.values():
        broker.period_s, broker.churn = 0.05, 1.0

    async def lost() -> float:
        workers = laboratory.running_workers
        return sum([await laboratory.metric(one, "routebook_history_lost_entries_total") for one in workers])

    await until(lost, timeout_s=120, every_s=0.5)
    for broker in laboratory.brokers.values():
        broker.period_s, broker.churn = 0.5, 0.2
    busy = percentile([one.took_s for one in laboratory.recording.lookups if one.sent > behind], 99)
    first = int((await client.call("XRANGE", keys.changes, "-", "+", "COUNT", 1))[0][0].rpartition(b"-")[2])
    page = (await asyncio.to_thread(laboratory.workers[0].process.get, "/v1/changes", since=5)).json()
    figure("entries lost to the reader, as counted", await lost(), at_least=1)
    figure("lost range reported: first version", page["missing"]["from_version"], exactly=6)
    figure("lost range reported: last version", page["missing"]["to_version"], at_least=first - 1)
    figure("lookup p99 before", calm * 1000, "ms")
    figure("lookup p99 while 240 changes a second are written", busy * 1000, "ms")
    figure("lookups that failed", sum(one.code is None for one in laboratory.recording.lookups), exactly=0)
    await laboratory.prove(required=WITHOUT_DEATHS)


async def test_a_worker_without_the_store_loses_its_brokers_to_the_others(
    laboratory: Laboratory, figure: Figures
) -> None:
    laboratory.settings |= {"broker_timeout_ms": 20_000, "store_cut_off_ms": 3000}
    await laboratory.start(workers=3, brokers=12, remoting=6, http=6)
    await laboratory.calm()
    worker, began = laboratory.workers[0], time.monotonic()
    mine = [broker for broker in laboratory.brokers.values() if broker.worker is worker]
    assert worker.proxy
    worker.proxy.black_hole()
    await asyncio.sleep(laboratory.setting_s("store_cut_off_ms"))
    took_s = await seconds_until(lambda: all(broker.worker not in (worker, None) for broker in mine))
    moved = time.monotonic()

    def have_registered() -> bool:
        registrations = laboratory.recording.of_kind("registration")
        return {one.subject for one in registrations if one.done and one.sent > moved} >= {one.name for one in mine}

    await until(have_registered)
    await laboratory.calm(3)
    ended = time.monotonic()
    worker.proxy.cut()
    worker.proxy.heal()

    async def is_current() -> bool:
        return bool((await asyncio.to_thread(worker.process.get, "/v1/status")).json()["stale_seconds"] == 0)

    await until(is_current)
    laboratory.recording.cut_off.append(CutOff(worker.name, began, time.monotonic()))
    await laboratory.calm(3)
    await laboratory.prove(required=WITHOUT_DEATHS)
    lookups = [one for one in laboratory.recording.lookups if one.worker == worker.name and began < one.sent < ended]
    over_http = [one for one in lookups if one.port == "http" and one.sent > began + 2.5]
    figure("brokers of the worker", len(mine), at_least=3)
    figure("on other workers after it noticed", took_s, "s", at_most=15)
    figure("lookups at this worker", len(lookups), at_least=200)
    figure("of these answered with the route", 100 * sum(one.done for one in lookups) / len(lookups), "%", exactly=100)
    figure(
        "of those over HTTP marked stale", 100 * sum(one.stale for one in over_http) / len(over_http), "%", exactly=100
    )
    figure("removals", len(laboratory.recording.removals), exactly=0)
