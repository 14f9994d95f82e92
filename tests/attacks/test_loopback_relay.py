"""A9: a TCP relay on the same host, and PROXY headers from loopback, do not make another machine an operator.

The service listens on all addresses, as `serve` does. The relay connects to it from loopback, so to the service each
client of the relay looks local.
"""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.runtime.running import Running
from tests.support.tcp_balancer import TcpBalancer

TOKEN = "correct-horse-battery-staple"
PROXY = b"PROXY TCP4 127.0.0.1 127.0.0.1 40000 8080\r\n"


@pytest.fixture
def service(store_url: str, namespace_name: str, tmp_path: Path) -> Iterator[Running]:
    flags = ("--redis-url", store_url, "--namespace", namespace_name, "--admin-token", TOKEN)
    with Running("serve", *flags, folder=tmp_path) as running:
        running.http = running.http.replace("0.0.0.0", "127.0.0.1")
        running.register("broker-a", "TopicA")
        yield running
        running.stop()


@pytest.fixture
def relayed(service: Running) -> Iterator[httpx.Client]:
    """A client whose connections come through the relay."""
    with (
        TcpBalancer([int(service.http.rpartition(":")[2])]) as relay,
        httpx.Client(base_url=f"http://{relay.address}", trust_env=False, timeout=10) as client,
    ):
        yield client


def test_a_client_behind_a_relay_is_no_operator(relayed: httpx.Client) -> None:
    for method, path, body in (
        ("PUT", "/v1/settings/hold_percent", {"value": 90}),
        ("GET", "/v1/settings", None),
        ("GET", "/v1/snapshot", None),
        ("DELETE", "/v1/topics/TopicA", None),
        ("PUT", "/v1/brokers/broker-a/write-permission", {"writable": False}),
    ):
        answer = relayed.request(method, path, json=body)
        assert (answer.status_code, answer.json()["type"]) == (401, "token-missing"), path
    assert relayed.get("/v1/routes/TopicA").json()["queueDatas"][0]["perm"] == 6


def test_a_client_behind_a_relay_may_use_the_token(relayed: httpx.Client) -> None:
    answer = relayed.get("/v1/settings", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200


def test_a_relayed_proxy_header_is_not_believed(service: Running) -> None:
    """The header claims that the client is on loopback, as a client of the relay could."""
    port = int(service.http.rpartition(":")[2])
    request = b"GET /v1/settings HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    with TcpBalancer([port]) as relay:
        assert _first_line(relay.port, PROXY + request).startswith(b"HTTP/1.1 400 ")


def _first_line(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(sent)
        received = b""
        while b"\r\n" not in received and (part := connection.recv(4096)):
            received += part
    return received.split(b"\r\n", 1)[0]
