"""A fleet's own `namesrv.conf`, given with `-c` to a service of several workers."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.runtime.running import Running, run
from tests.support.peers import Peer
from tests.support.waiting import until

NAMESRV_CONF = """\
listenPort=0
bindAddress=127.0.0.1
rocketmqHome=/opt/rocketmq
serverWorkerThreads=12
ourOwnKey=kept
some.password=hunter2
shutdownWaitTimeSeconds=3
waitSecondsForService=7
"""


def serving(store_url: str, namespace: str, folder: Path, *more: str) -> Running:
    file = folder / "namesrv.conf"
    file.write_text(NAMESRV_CONF)
    store = ("--redis-url", store_url, "--namespace", namespace)
    return Running("serve", "-c", str(file), *store, *more, folder=folder)


async def shown_by(service: Running) -> dict[str, str]:
    """319 over a connection of its own, so that any of the workers may answer."""
    async with await Peer.connect(service.remoting) as peer:
        text = (await peer.ask(319)).body.decode()
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_every_worker_returns_the_whole_file(
    workers: str, store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    with serving(store_url, namespace_name, tmp_path, "--workers", workers) as service:
        # Scripts wait for this line of Apache's, by itself.
        first = service.output.splitlines()[0]
        assert first == f"The Name Server boot success. serializeType=JSON, address {service.remoting}"
        answers = await asyncio.gather(*(shown_by(service) for _ in range(16)))
        for shown in answers:
            assert shown["rocketmqHome"] == "/opt/rocketmq"
            assert (shown["serverWorkerThreads"], shown["ourOwnKey"]) == ("12", "kept")
            assert shown["configStorePath"].endswith("namesrv.conf")
            assert (shown["shutdownWaitTimeSeconds"], shown["waitSecondsForService"]) == ("3", "7")
            assert f"127.0.0.1:{shown['listenPort']}" == service.remoting
            assert "hunter2" not in shown.values()
        assert service.log.count("ourOwnKey") == 1


async def test_a_change_by_318_reaches_all_workers_and_survives(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    allowed = ("--workers", "2", "--remoting-config-updates", "true")
    with serving(store_url, namespace_name, tmp_path, *allowed) as service:
        async with await Peer.connect(service.remoting) as peer:
            assert (await peer.ask(318, body=b"waitSecondsForService=11\nenableTopicList=no\nlistenPort=1\n")).code == 0

        async def is_everywhere() -> bool:
            answers = await asyncio.gather(*(shown_by(service) for _ in range(8)))
            return all((one["waitSecondsForService"], one["enableTopicList"]) == ("11", "false") for one in answers)

        await until(is_everywhere)
    store = ("--redis-url", store_url, "--namespace", namespace_name)
    done = await asyncio.to_thread(run, "serve", "-p", "--json", "-c", "namesrv.conf", *store, cwd=tmp_path)
    rows = {one["key"]: (one["value"], one["origin"]) for one in json.loads(done.stdout)["settings"]}
    assert rows["wait_seconds_for_service"] == ("11", "run time")
    assert rows["enable_topic_list"] == ("false", "run time")
    assert rows["drain_ms"] == ("3000", "file")


def test_a_controller_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "namesrv.conf").write_text("enableControllerInNamesrv=true\n")
    ended = run("serve", "-c", "namesrv.conf", "--redis-url", "redis://127.0.0.1:1", cwd=tmp_path)
    assert ended.returncode == 2
    assert "Run Apache's controller beside it" in ended.stderr
