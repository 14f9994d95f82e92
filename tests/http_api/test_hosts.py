"""The `Host` header must name this service: pages whose name resolves to this machine cannot use it."""

import socket

import pytest

from routebook.http_api.middleware import host_of, is_own_host
from routebook.store.namespace import Namespace
from tests.http_api.conftest import Worker, running, seat

PATHS = [
    ("GET", "/v1/routes/TopicA"),
    ("GET", "/v1/routes/TopicA?min_version=0"),
    ("GET", "/v1/status"),
    ("GET", "/v1/settings"),
    ("PUT", seat()),
    ("GET", "/rocketmq/nsaddr"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/nothing"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("host", ["evil.example:8080", "evil", "127.0.0.1.evil.example", "[::1].evil.example", "a b"])
async def test_a_foreign_host_is_refused_on_all_routes(worker: Worker, method: str, path: str, host: str) -> None:
    await worker.put_broker()
    answer = await worker.http.request(method, path, headers={"host": host}, json={"address": "127.0.0.9:1"})
    assert (answer.status_code, answer.json()["type"]) == (421, "wrong-host")
    assert "http_host_names" in answer.json()["advice"]
    assert worker.registry.replica.version == 1


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "10.1.2.3", "[::1]:8080", "[fe80::1]", "localhost", "LocalHost.:80", socket.gethostname(), ""],
)
async def test_addresses_and_the_names_of_the_machine_are_accepted(worker: Worker, host: str) -> None:
    await worker.put_broker()
    assert (await worker.http.get("/v1/routes/TopicA", headers={"host": host})).status_code == 200


async def test_names_of_the_service_are_accepted(namespace: Namespace) -> None:
    settings = {
        "http_host_names": "names.example; *.svc.example",
        "advertised_addresses": "ns1.example:9876;[::1]:9876",
    }
    async with running(namespace, **settings) as worker:
        for host in ("names.example", "NAMES.example.:80", "a.svc.example", "a.b.svc.example:1", "ns1.example"):
            assert (await worker.http.get("/v1/status", headers={"host": host})).status_code == 200, host
        for host in ("svc.example", "names.example.org", "xsvc.example", "ns2.example"):
            assert (await worker.http.get("/v1/status", headers={"host": host})).status_code == 421, host


async def test_a_star_accepts_every_name(namespace: Namespace) -> None:
    async with running(namespace, http_host_names="*") as worker:
        assert (await worker.http.get("/v1/status", headers={"host": "any.example"})).status_code == 200


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("A.Example:80", "a.example"),
        ("a.example.", "a.example"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("[::1].x", "["),
        ("", ""),
    ],
)
def test_the_host_is_taken_from_the_header(header: str, host: str) -> None:
    assert host_of(header) == host


def test_a_zone_belongs_to_an_address() -> None:
    assert is_own_host("fe80::1%eth0", frozenset())
    assert not is_own_host("[", frozenset())
