"""The admin port of a worker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from prometheus_client.parser import text_string_to_metric_families

from routebook.http_api.app import create_admin_app
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry
from routebook.replica.replica import Replica
from routebook.settings import LiveSettings, load
from routebook.store.namespace import Namespace
from tests.http_api.conftest import Worker
from tests.http_api.ports import served


@asynccontextmanager
async def admin_port(
    registry: Registry, metrics: Metrics, *, draining: bool = False
) -> AsyncIterator[httpx.AsyncClient]:
    app = create_admin_app(registry, metrics, draining=lambda: draining)
    async with served(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        yield http


def unloaded(namespace: Namespace) -> Registry:
    """A registry before its first load: its replica is not running."""
    live = LiveSettings(load())
    return Registry(namespace, Replica(namespace, live), live, worker="unloaded")


async def test_an_unloaded_worker_is_alive_and_reports_what_is_missing(namespace: Namespace) -> None:
    async with admin_port(unloaded(namespace), Metrics()) as http:
        assert (await http.get("/livez")).status_code == 200
        answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert "first complete load" in answer.json()["missing"][0]


async def test_a_loaded_worker_is_ready_and_reports_the_age_of_its_table(worker: Worker) -> None:
    async with admin_port(worker.registry, worker.metrics) as http:
        answer = await http.get("/readyz")
    assert answer.status_code == 200
    assert (answer.json()["missing"], answer.json()["stale_seconds"]) == ([], 0.0)


async def test_a_draining_worker_is_alive_but_not_ready(worker: Worker) -> None:
    async with admin_port(worker.registry, worker.metrics, draining=True) as http:
        assert (await http.get("/livez")).status_code == 200
        answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert "draining" in answer.json()["missing"][0]


async def test_requests_are_counted_by_path_and_result(worker: Worker) -> None:
    await worker.put_broker()
    for path in ("/v1/routes/TopicA", "/v1/routes/TopicA?min_version=1", "/v1/routes/missing", "/v1/topics/a", "/x"):
        await worker.http.get(path)
    async with admin_port(worker.registry, worker.metrics) as http:
        answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    lookups = "routebook_lookups_total"
    assert samples[lookups, (("port", "http"), ("result", "found"))] == 2
    assert samples[lookups, (("port", "http"), ("result", "not_found"))] == 1
    requests = "routebook_http_requests_total"
    assert samples[requests, (("method", "GET"), ("route", "/v1/topics/{topic}"), ("status", "404"))] == 1
    assert samples[requests, (("method", "GET"), ("route", "other"), ("status", "404"))] == 1
    put = "/v1/clusters/{cluster}/brokers/{name}/{id}"
    assert samples[requests, (("method", "PUT"), ("route", put), ("status", "200"))] == 1


async def test_an_unknown_path_of_the_admin_port_is_a_problem(worker: Worker) -> None:
    async with admin_port(worker.registry, worker.metrics) as http:
        answer = await http.get("/v1/topics")
    assert (answer.status_code, answer.json()["type"]) == (404, "no-such-path")
