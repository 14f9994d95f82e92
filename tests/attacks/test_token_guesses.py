"""A13: guesses of the token are limited per address, and another address is not affected."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.runtime.running import Running

TOKEN = "correct-horse-battery-staple"
LIMIT = 5
GUESSES = 300


@pytest.fixture
def service(store_url: str, namespace_name: str, tmp_path: Path) -> Iterator[Running]:
    flags = ("--redis-url", store_url, "--namespace", namespace_name, "--admin-token", TOKEN)
    env = {"ROUTEBOOK_MAX_FAILED_SIGN_INS_PER_MINUTE_PER_ADDRESS": str(LIMIT)}
    with Running("serve", *flags, folder=tmp_path, env=env) as running:
        running.http = running.http.replace("0.0.0.0", "127.0.0.1")
        running.register("broker-a", "TopicA")
        yield running
        running.stop()


def client_at(service: Running, address: str) -> httpx.Client:
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=service.http, transport=transport, trust_env=False, timeout=10)


def ask(client: httpx.Client, token: str) -> httpx.Response:
    return client.get("/v1/settings", headers={"authorization": f"Bearer {token}"})


def test_guesses_of_one_address_are_limited(service: Running) -> None:
    began = time.monotonic()
    with client_at(service, "127.0.0.1") as client, client_at(service, "127.0.0.2") as other:
        answers = [ask(client, f"guess-{number}") for number in range(GUESSES)]
        checked = Counter(answer.status_code for answer in answers)
        refilled = (time.monotonic() - began) * LIMIT / 60
        assert checked[401] <= LIMIT + refilled + 1
        assert checked[429] == GUESSES - checked[401]
        assert all(int(answer.headers["retry-after"]) > 0 for answer in answers if answer.status_code == 429)
        # The right token is refused as well. Otherwise the answer would distinguish it from wrong ones.
        assert ask(client, TOKEN).status_code == 429
        assert client.get("/v1/routes/TopicA").status_code == 200
        assert ask(other, TOKEN).status_code == 200
