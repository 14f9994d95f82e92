"""A11: what strangers can put into the route table is bounded, and what was refused does not remain."""

from pathlib import Path

import httpx
import pytest

from tests.attacks.attacked_service import attacked_service, connect
from tests.remoting.port import BROKER_A, registration_body, topic
from tests.support.waiting import until

GROUPS, VALUES, VALUE_BYTES = 2000, 270, 65_536
TEN_YEARS_MS = 10 * 365 * 86_400_000


async def test_groups_of_refused_registrations_disappear(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    async with (
        attacked_service(store_url, namespace_name, tmp_path, "--scan-not-active-broker-interval-ms", "200") as service,
        await connect(service) as peer,
        httpx.AsyncClient(base_url=service.http, trust_env=False) as http,
    ):
        await http.put("/v1/settings/empty_group_timeout_ms", json={"value": "2000"})
        body = registration_body("the-only-topic")
        for number in range(GROUPS):
            await peer.send(peer.request(103, BROKER_A | {"brokerName": f"unknown-{number}"}, body))
        assert {(await peer.answer()).code for _ in range(GROUPS)} == {1}

        async def are_gone() -> bool:
            return bool((await http.get("/v1/status")).json()["counts"]["groups"] == 0)

        await until(are_gone, timeout_s=25, every_s=0.2)


async def test_key_values_do_not_fill_the_memory(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    async with attacked_service(store_url, namespace_name, tmp_path) as service, await connect(service) as peer:
        answers = [
            await peer.ask(100, {"namespace": "ns", "key": f"k{number}", "value": "x" * VALUE_BYTES})
            for number in range(VALUES)
        ]
        accepted = [answer for answer in answers if answer.code == 0]
        assert 200 < len(accepted) < 260
        assert "max_key_values_bytes allows 16777216" in (answers[-1].remark or "")
        await peer.ask(101, {"namespace": "ns", "key": "k0"})
        await peer.ask(102, {"namespace": "ns", "key": "k0"})
        again = await peer.ask(100, {"namespace": "ns", "key": "k0", "value": "x" * VALUE_BYTES})
        assert again.code == 0


@pytest.mark.parametrize(
    ("ext", "queues", "setting"),
    [
        ({"heartbeatTimeoutMillis": str(TEN_YEARS_MS)}, 8, "max_broker_timeout_ms allows 86400000"),
        ({"heartbeatTimeoutMillis": "1"}, 8, "min_broker_timeout_ms requires at least 1000"),
        ({}, 2_147_483_647, "max_queues_per_topic allows 65536"),
    ],
)
async def test_absurd_values_are_refused(
    store_url: str, namespace_name: str, tmp_path: Path, ext: dict[str, str], queues: int, setting: str
) -> None:
    async with attacked_service(store_url, namespace_name, tmp_path) as service, await connect(service) as peer:
        body = registration_body(topic("TopicA", readQueueNums=queues), "TopicB")
        answer = await peer.ask(103, BROKER_A | ext, body)
        assert answer.code == 1
        assert setting in (answer.remark or "")
        assert b"broker-a" not in (await peer.ask(106)).body
