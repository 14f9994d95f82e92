"""A10: a page whose name was made to resolve to this machine can neither read nor write (DNS rebinding).

To the service such a page is a local client with the page's name in `Host`. A name without a dot is no exception.
"""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.runtime.running import Running

REGISTRATION = {"address": "127.0.0.66:10911", "topics": {"Evil": {}}}
REQUESTS = [
    ("PUT", "/v1/clusters/demo/brokers/evil/0", REGISTRATION),
    ("PUT", "/v1/settings/hold_percent", {"value": 90}),
    ("GET", "/v1/routes/TopicA", None),
    ("GET", "/v1/routes/TopicA?min_version=1", None),
    ("GET", "/v1/brokers", None),
    ("GET", "/v1/snapshot", None),
    ("GET", "/rocketmq/nsaddr", None),
    ("GET", "/openapi.json", None),
]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    """As on a developer's machine, where pages in a browser can reach it."""
    with Running("up", "--advertised-addresses", "names.example:9876", folder=tmp_path) as running:
        running.register("broker-a", "TopicA")
        yield running
        running.stop()


def test_a_page_under_another_name_is_refused_on_every_route(service: Running) -> None:
    with httpx.Client(base_url=service.http, trust_env=False, timeout=10) as client:
        for host in ("evil.example", "evil", "localhost.evil.example", "127.0.0.1.evil.example"):
            port = service.http.rpartition(":")[2]
            headers = {"host": f"{host}:{port}", "origin": f"http://{host}:{port}"}
            for method, path, body in REQUESTS:
                answer = client.request(method, path, json=body, headers=headers)
                assert (answer.status_code, answer.json()["type"]) == (421, "wrong-host"), (host, path)
    assert [broker["name"] for broker in service.get("/v1/brokers").json()["brokers"]] == ["broker-a"]


def test_addresses_and_names_of_the_service_are_answered(service: Running) -> None:
    with httpx.Client(base_url=service.http, trust_env=False, timeout=10) as client:
        for host in ("127.0.0.1", "localhost", "[::1]:8080", "names.example"):
            for path in ("/v1/routes/TopicA", "/v1/brokers"):
                assert client.get(path, headers={"host": host}).status_code == 200, host
