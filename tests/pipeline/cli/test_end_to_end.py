"""From the scripts of the service to the answers of the commands, in one process with one Java."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from routebook.http_api.short_way import find_counted
from tests.pipeline.cli.documented import example_with
from tests.pipeline.cli.operator import LIGHT
from tests.pipeline.cli.shell import Ended, Shell
from tests.reference.build import A, B, C, registration, topics, version
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.registering import register

NOBODY = "redis://127.0.0.1:1"


class Fleet:
    """A worker, and what it answered at each version."""

    def __init__(self, worker: InProcessWorker) -> None:
        self.worker = worker
        self.answered: dict[int, Any] = {}

    async def look(self) -> None:
        body = find_counted(self.worker.registry, self.worker.metrics, "orders")
        route = json.loads(body)
        # Filter servers are no part of the history.
        self.answered[self.worker.replica.version] = {key: route[key] for key in ("queueDatas", "brokerDatas")}

    async def live(self) -> None:
        registry = self.worker.registry
        await register(registry, registration(A))
        await self.look()
        await register(registry, registration(B, 1))
        await register(registry, registration(C, broker="broker-b", topics=topics("orders", "refunds", write_queues=2)))
        await self.look()
        await registry.set_write_permission("broker-a", False, CALLER)
        await self.look()
        await register(
            registry, registration(A, data_version=version(1), topics=topics("orders", "payments", read_queues=16))
        )
        await self.look()


@pytest.mark.slow
async def test_from_the_services_scripts_to_answers_and_exit_codes(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    environment = {
        "ROUTEBOOK_REDIS_URL": store_url,
        "ROUTEBOOK_LAKE": str(tmp_path / "lake"),
        "ROUTEBOOK_NAMESPACE": namespace_name,
        "NOBODY_URL": NOBODY,
    }
    async with running_worker(store_url, namespace_name) as worker:
        with Shell(environment) as shell:

            async def pipeline(*arguments: str) -> Ended:
                return await asyncio.to_thread(shell.pipeline, *arguments, *LIGHT)

            assert (await pipeline("run", "integrity")).code == 3, "no lake yet"
            assert (await pipeline("ingest", "--once", "--url-env", "NOBODY_URL")).code == 3

            fleet = Fleet(worker)
            await fleet.live()
            assert await pipeline("ingest", "--once") == Ended(0, "")

            at_version, answered = list(fleet.answered.items())[2]
            told = await pipeline("route-at", "orders", "--version", str(at_version), "--json")
            assert told.code == 0
            answer = json.loads(told.out)
            assert {key: answer[key] for key in answered} == answered
            assert list(answer) == list(example_with("topic")), "as it is documented"
            assert (answer["topic"], answer["version"], answer["era"]) == ("orders", at_version, 0)
            assert (answer["certain"], answer["missing"], answer["partial"]) == (True, None, False)
            told = await pipeline("route-at", "nowhere", "--at", "now", "--json")
            assert told.code == 1
            answer = json.loads(told.out)
            assert (answer["queueDatas"], answer["brokerDatas"], answer["certain"]) == ([], [], True)
            assert await pipeline("route-at", "nowhere", "--at", "now") == Ended(1, "")
            assert await pipeline("route-at", "orders", "--at", "2020-01-01T00:00Z", "--json") == Ended(1, "")
            newest = max(fleet.answered)
            assert (await pipeline("route-at", "orders", "--version", str(newest + 1))).code == 1

            told = await pipeline("run", "availability", "--by", "seat", "--json")
            assert told.code == 0
            answer = json.loads(told.out)
            seats = [(row["broker"], row["broker_id"], row["availability"]) for row in answer["rows"]]
            assert seats == [("broker-a", 0, 1.0), ("broker-a", 1, 1.0), ("broker-b", 0, 1.0)]
            assert answer["integrity"][0]["last_version"] == newest
            assert (answer["partial"], answer["ok"]) == (False, True)

            beyond = ("run", "integrity", "--from", "-1h", "--to", "2199-01-01T00:00Z", "--json")
            assert await pipeline(*beyond) == Ended(1, "")

            # A stretch is trimmed before it was read.
            await worker.registry.delete_topic("payments", None, CALLER)
            await trim_everything(worker, namespace_name)
            assert await pipeline("ingest", "--once") == Ended(4, "")
            assert (await pipeline("ingest", "--once", "--on-loss", "record")).code == 0
            torn = await pipeline(*beyond, "--allow-partial")
            assert torn.code == 1
            answer = json.loads(torn.out)
            assert (answer["partial"], answer["ok"]) == (True, False)
            assert answer["rows"][0]["missing"] > 0
            told = await pipeline("route-at", "nowhere", "--json")
            assert told.code == 1
            answer = json.loads(told.out)
            assert answer["certain"] is False
            assert answer["missing"]["from_version"] == newest + 1


async def trim_everything(worker: InProcessWorker, namespace: str) -> None:
    await worker.client.call("XTRIM", f"rb:{{{namespace}}}:changes", "MAXLEN", 0)
