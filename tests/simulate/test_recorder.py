"""The recorder writes the worker's responses with their version."""

import asyncio
from pathlib import Path

import pytest

from routebook.errors import PeerUnavailableError
from routebook.simulate.records import Recorder
from tests.runtime.running import Running
from tests.support.simulated import lines_of
from tests.support.waiting import until


async def test_responses_are_recorded_with_their_version(service: Running, tmp_path: Path) -> None:
    path = tmp_path / "answers"
    await asyncio.to_thread(service.register, "broker-a", "TopicA", "TopicB")
    with path.open("w") as file:
        recorder = Recorder(service.http, file, every_s=0.001)
        running = asyncio.create_task(recorder.run())
        try:
            await until(lambda: {line["topic"] for line in lines_of(path)} == {"TopicA", "TopicB"})
            assert {line["version"] for line in lines_of(path)} == {1}
            await asyncio.to_thread(service.register, "broker-b", "TopicB", "TopicC")
            # The watch reports the new topic long before the next list of topics.
            await until(lambda: "TopicC" in {line["topic"] for line in lines_of(path)})
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    lines = lines_of(path)
    assert {line["status"] for line in lines} == {200}
    assert len({line["history"] for line in lines}) == 1
    for line in lines:
        brokers = [group["brokerName"] for group in line["route"]["brokerDatas"]]
        expected = {"TopicA": ["broker-a"], "TopicB": ["broker-a"], "TopicC": ["broker-b"]}[line["topic"]]
        if line["topic"] == "TopicB" and line["version"] == 2:
            expected = ["broker-a", "broker-b"]
        assert brokers == expected, line


async def test_deleted_topics_are_looked_up_too(service: Running, tmp_path: Path) -> None:
    path = tmp_path / "answers"
    await asyncio.to_thread(service.register, "broker-a", "TopicA")
    with path.open("w") as file:
        recorder = Recorder(service.http, file, every_s=0.001)
        running = asyncio.create_task(recorder.run(200))
        await until(lambda: recorder.written > 10)
        await asyncio.to_thread(service.delete, "/v1/topics/TopicA")
        async with asyncio.timeout(30):
            await running
    deleted = [line for line in lines_of(path) if line["status"] == 404]
    assert deleted
    assert {(line["version"], line["route"]) for line in deleted} == {(2, None)}
    assert recorder.written == 200


async def test_an_unreachable_service_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "answers").open("w") as file, pytest.raises(PeerUnavailableError):
        await Recorder("http://127.0.0.1:1", file).run(1)
