"""Large bodies are read by a child process: with the same outcome, whatever becomes of the child."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from routebook.errors import NotReadyError
from routebook.protocol.body_json import BodyError, ChecksumError, RegistrationBodyError, VersionError
from routebook.protocol.request_bodies import DEFAULT_MAX_INFLATED_BYTES, RegistrationBody, read_registration_body
from routebook.remoting import body_reader
from routebook.remoting.body_reader import BodyReader
from tests.protocol.bodies.compressed_bodies import compressed, content_of
from tests.protocol.bodies.recorded import (
    BROKER_4_9_7,
    BROKER_4_9_7_COMPRESSED,
    BROKER_5_5_0,
    BROKER_5_5_0_COMPRESSED,
    E11,
    NOW_MS,
)
from tests.support.waiting import until

RECORDED = (BROKER_4_9_7, BROKER_4_9_7_COMPRESSED, BROKER_5_5_0, BROKER_5_5_0_COMPRESSED, E11)
ASKED: dict[str, Any] = {
    "version": 513,
    "now_ms": NOW_MS,
    "compressed": False,
    "body_crc32": 0,
    "max_inflated_bytes": DEFAULT_MAX_INFLATED_BYTES,
}


@pytest.fixture
async def reader() -> AsyncIterator[BodyReader]:
    reader = BodyReader()
    yield reader
    await reader.close()


@pytest.fixture
def all_to_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_reader, "INLINE_BYTES", -1)


def body_of(topics: int, queues: int = 8) -> bytes:
    table = {f"topic-{n}": {"topicName": f"topic-{n}", "perm": 6, "readQueueNums": queues} for n in range(topics)}
    return json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": table}}).encode()


LARGE = body_of(2_000)


async def read(reader: BodyReader, body: bytes, **asked: Any) -> RegistrationBody:
    return await reader.read(body, **ASKED | asked)


async def outcome(reader: BodyReader, body: bytes, **asked: Any) -> object:
    try:
        return await read(reader, body, **asked)
    except BodyError as error:
        return type(error), str(error), error.remark


def outcome_here(body: bytes, **asked: Any) -> object:
    try:
        return read_registration_body(body, **ASKED | asked)
    except BodyError as error:
        return type(error), str(error), error.remark


def runs(process: int) -> bool:
    """Not so once it has ended, even if nobody has asked how."""
    try:
        os.kill(process, 0)
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


async def child_of(reader: BodyReader) -> int:
    await read(reader, LARGE)
    assert reader.process_id is not None
    return reader.process_id


async def holding(reader: BodyReader) -> tuple[int, "asyncio.Task[RegistrationBody]"]:
    """A child that has a body and does not answer."""
    process = await child_of(reader)
    os.kill(process, signal.SIGSTOP)
    reading = asyncio.create_task(read(reader, body_of(2_000, queues=3)))
    await until(lambda: reader.is_reading)
    return process, reading


# -- the same outcome


async def test_small_bodies_need_no_child(reader: BodyReader) -> None:
    for body in RECORDED:
        for form in (False, True):
            assert await outcome(reader, body, compressed=form) == outcome_here(body, compressed=form)
    assert reader.process_id is None


async def test_a_large_body_is_read_by_the_child(reader: BodyReader) -> None:
    assert await read(reader, LARGE) == read_registration_body(LARGE, **ASKED)
    assert reader.process_id is not None
    assert runs(reader.process_id)


async def test_a_small_one_that_inflates_to_a_large_one_is_too(reader: BodyReader) -> None:
    body = compressed(content_of([b"a-topic 8 8 6 SINGLE_TAG {}"] * 5_000))
    assert len(body) < 1_000
    assert await outcome(reader, body, compressed=True) == outcome_here(body, compressed=True)
    assert reader.process_id is not None


@pytest.mark.usefixtures("all_to_the_child")
async def test_whatever_a_body_is_the_child_finds_the_same(reader: BodyReader) -> None:
    dice = random.Random(7)
    bodies = [*RECORDED, b"", b"null", b"\xff", LARGE, compressed(content_of([b"t 1 1 6 SINGLE_TAG"] * 9_000))]
    for _ in range(300):
        spoiled = bytearray(dice.choice(bodies[:5]))
        at = dice.randrange(len(spoiled))
        spoiled[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(3))
        bodies.append(bytes(spoiled))
        bodies.append(zlib.compress(bytes(spoiled)))
    for body in bodies:
        asked = {"version": dice.choice([0, 36, 37, 412, 413, 513]), "compressed": dice.random() < 0.5}
        assert await outcome(reader, body, **asked) == outcome_here(body, **asked), (body, asked)


@pytest.mark.usefixtures("all_to_the_child")
async def test_errors_are_the_same_errors(reader: BodyReader) -> None:
    with pytest.raises(VersionError):
        await read(reader, LARGE, version=-1)
    with pytest.raises(ChecksumError) as refusal:
        await read(reader, LARGE, body_crc32=5)
    assert refusal.value.announced == 5
    with pytest.raises(RegistrationBodyError, match="inflates to more than 9 bytes"):
        await read(reader, E11, compressed=True, max_inflated_bytes=9)
    assert await read(reader, LARGE, body_crc32=zlib.crc32(LARGE) & 0x7FFFFFFF)


async def test_many_that_ask_at_once_get_their_own_answers_from_one_child(reader: BodyReader) -> None:
    asked = [body_of(1_000 + n, queues=n) for n in range(8)]
    done: list[int] = []

    async def ask(n: int) -> RegistrationBody:
        said = await read(reader, asked[n])
        done.append(n)
        return said

    said = await asyncio.gather(*(ask(n) for n in range(8)))
    assert said == [read_registration_body(body, **ASKED) for body in asked]
    assert done == list(range(8))


# -- what may become of the child


async def test_a_child_that_is_killed_over_a_body_is_replaced_and_the_body_read(reader: BodyReader) -> None:
    process, reading = await holding(reader)
    os.kill(process, signal.SIGKILL)
    assert (await reading).topics["topic-0"].read_queues == 3
    assert reader.process_id != process


async def test_a_child_that_died_between_two_bodies_is_replaced(reader: BodyReader) -> None:
    process = await child_of(reader)
    os.kill(process, signal.SIGKILL)
    await until(lambda: not runs(process))
    assert len((await read(reader, LARGE)).topics) == 2_000


async def test_a_child_that_hangs_is_replaced(reader: BodyReader, monkeypatch: pytest.MonkeyPatch) -> None:
    process = await child_of(reader)
    monkeypatch.setattr(body_reader, "ANSWER_WITHIN_S", 5.0)
    os.kill(process, signal.SIGSTOP)
    assert len((await read(reader, LARGE)).topics) == 2_000
    assert not runs(process)


async def test_a_body_that_no_child_survives_is_refused_in_clear_words(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_reader, "COMMAND", "no-such-command")
    with pytest.raises(NotReadyError, match="ended twice over this one of"):
        await read(reader, LARGE)
    monkeypatch.undo()
    assert len((await read(reader, LARGE)).topics) == 2_000


async def test_a_caller_that_goes_away_spoils_nobody_elses_answer(reader: BodyReader) -> None:
    process, reading = await holding(reader)
    waiting = asyncio.create_task(read(reader, LARGE))
    await asyncio.sleep(0)
    reading.cancel()
    waiting.cancel()
    await asyncio.wait([reading, waiting])
    os.kill(process, signal.SIGCONT)
    assert (await read(reader, LARGE)).topics["topic-0"].read_queues == 8
    assert reader.process_id == process


async def test_signals_to_all_of_the_service_do_not_end_it(reader: BodyReader) -> None:
    process = await child_of(reader)
    for one in (signal.SIGINT, signal.SIGTERM):
        os.kill(process, one)
    assert await child_of(reader) == process


async def test_a_child_that_has_grown_is_replaced(reader: BodyReader, monkeypatch: pytest.MonkeyPatch) -> None:
    process = await child_of(reader)
    monkeypatch.setattr(body_reader, "RETIRE_ABOVE_BYTES", 1)
    await read(reader, LARGE)
    assert reader.process_id is None
    await until(lambda: not runs(process))
    with pytest.raises(RegistrationBodyError):
        await read(reader, b"[" * 50_000)
    assert reader.process_id is None


async def test_closing_ends_the_child_even_one_that_hangs(reader: BodyReader) -> None:
    process, reading = await holding(reader)
    waiting = asyncio.create_task(read(reader, LARGE))
    await asyncio.sleep(0)
    await reader.close()
    assert not runs(process)
    for one in (reading, waiting):
        with pytest.raises(NotReadyError, match="stopping"):
            await one
    with pytest.raises(NotReadyError, match="stopping"):
        await read(reader, LARGE)


async def test_a_worker_that_is_killed_leaves_no_child_behind() -> None:
    program = (
        "import asyncio, json\n"
        "from routebook.remoting.body_reader import BodyReader\n"
        "async def main():\n"
        "    reader = BodyReader()\n"
        "    body = json.dumps({'filterServerList': ['x' * 50_000]}).encode()\n"
        "    await reader.read(\n"
        "        body, version=513, now_ms=0, compressed=False, body_crc32=0, max_inflated_bytes=1)\n"
        "    print(reader.process_id, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as worker:
        assert worker.stdout
        child = int(await asyncio.to_thread(worker.stdout.readline))
        assert runs(child)
        worker.kill()
    await until(lambda: not runs(child))
