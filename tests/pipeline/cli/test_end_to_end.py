"""From the scripts of the service to the answers of the commands, in one process with one Java."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from routebook.http_api.lookup import find_and_count
from tests.pipeline.cli.commands import LIGHT
from tests.pipeline.cli.documented import example_with
from tests.pipeline.cli.shell import Result, Shell
from tests.reference.build import A, B, C, registration, topics, version
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.registering import register

UNREACHABLE = "redis://127.0.0.1:1"


class Fleet:
    """A worker, and the route that it answered at each version."""

    def __init__(self, worker: InProcessWorker) -> None:
        self.worker = worker
        self.routes: dict[int, Any] = {}

    async def record_route(self) -> None:
        body = find_and_count(self.worker.registry, self.worker.metrics, "orders")
        route = json.loads(body)
        # Filter servers are no part of the history.
        self.routes[self.worker.replica.version] = {key: route[key] for key in ("queueDatas", "brokerDatas")}

    async def run(self) -> None:
        registry = self.worker.registry
        await register(registry, registration(A))
        await self.record_route()
        await register(registry, registration(B, 1))
        await register(registry, registration(C, broker="broker-b", topics=topics("orders", "refunds", write_queues=2)))
        await self.record_route()
        await registry.set_write_permission("broker-a", False, CALLER)
        await self.record_route()
        await register(
            registry, registration(A, data_version=version(1), topics=topics("orders", "payments", read_queues=16))
        )
        await self.record_route()


@pytest.mark.slow
async def test_from_the_services_scripts_to_answers_and_exit_codes(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    environment = {
        "ROUTEBOOK_REDIS_URL": store_url,
        "ROUTEBOOK_LAKE": str(tmp_path / "lake"),
        "ROUTEBOOK_NAMESPACE": namespace_name,
        "UNREACHABLE_URL": UNREACHABLE,
    }
    async with running_worker(store_url, namespace_name) as worker:
        with Shell(environment) as shell:

            async def pipeline(*arguments: str) -> Result:
                return await asyncio.to_thread(shell.pipeline, *arguments, *LIGHT)

            assert (await pipeline("run", "integrity")).code == 3, "no lake yet"
            assert (await pipeline("ingest", "--once", "--url-env", "UNREACHABLE_URL")).code == 3

            fleet = Fleet(worker)
            await fleet.run()
            assert await pipeline("ingest", "--once") == Result(0, "")

            at_version, route = list(fleet.routes.items())[2]
            result = await pipeline("route-at", "orders", "--version", str(at_version), "--json")
            assert result.code == 0
            answer = json.loads(result.out)
            assert {key: answer[key] for key in route} == route
            assert list(answer) == list(example_with("topic")), "not the documented fields"
            assert (answer["topic"], answer["version"], answer["era"]) == ("orders", at_version, 0)
            assert (answer["certain"], answer["missing"], answer["partial"]) == (True, None, False)
            result = await pipeline("route-at", "nowhere", "--at", "now", "--json")
            assert result.code == 1
            answer = json.loads(result.out)
            assert (answer["queueDatas"], answer["brokerDatas"], answer["certain"]) == ([], [], True)
            assert await pipeline("route-at", "nowhere", "--at", "now") == Result(1, "")
            assert await pipeline("route-at", "orders", "--at", "2020-01-01T00:00Z", "--json") == Result(1, "")
            newest = max(fleet.routes)
            assert (await pipeline("route-at", "orders", "--version", str(newest + 1))).code == 1

            result = await pipeline("run", "availability", "--by", "seat", "--json")
            assert result.code == 0
            answer = json.loads(result.out)
            seats = [(row["broker"], row["broker_id"], row["availability"]) for row in answer["rows"]]
            assert seats == [("broker-a", 0, 1.0), ("broker-a", 1, 1.0), ("broker-b", 0, 1.0)]
            assert answer["integrity"][0]["last_version"] == newest
            assert (answer["partial"], answer["ok"]) == (False, True)

            beyond = ("run", "integrity", "--from", "-1h", "--to", "2199-01-01T00:00Z", "--json")
            assert await pipeline(*beyond) == Result(1, "")

            # Entries are trimmed before they were read.
            await worker.registry.delete_topic("payments", None, CALLER)
            await trim_everything(worker, namespace_name)
            assert await pipeline("ingest", "--once") == Result(4, "")
            assert (await pipeline("ingest", "--once", "--on-loss", "record")).code == 0
            partial = await pipeline(*beyond, "--allow-partial")
            assert partial.code == 1
            answer = json.loads(partial.out)
            assert (answer["partial"], answer["ok"]) == (True, False)
            assert answer["rows"][0]["missing"] > 0
            result = await pipeline("route-at", "nowhere", "--json")
            assert result.code == 1
            answer = json.loads(result.out)
            assert answer["certain"] is False
            assert answer["missing"]["from_version"] == newest + 1


async def trim_everything(worker: InProcessWorker, namespace: str) -> None:
    await worker.client.call("XTRIM", f"rb:{{{namespace}}}:changes", "MAXLEN", 0)
