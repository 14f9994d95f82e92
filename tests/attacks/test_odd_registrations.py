"""A14: no script fails after it has written, and a text that is no text is refused as invalid."""

from pathlib import Path

import httpx

from tests.attacks.attacked_service import attacked_service, connect
from tests.remoting.port import BROKER_A, registration_body

SEATS = 4100
LONE_SURROGATE = "\\ud800"
SEAT = "/v1/clusters/c/brokers/broker-a/0"


async def test_thousands_of_acting_seats_do_not_break_the_removal_of_one(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    async with (
        attacked_service(store_url, namespace_name, tmp_path) as service,
        await connect(service) as peer,
        httpx.AsyncClient(base_url=service.http, trust_env=False, timeout=30) as http,
    ):
        body = registration_body("TopicA", "TopicB")
        remarks = set()
        for number in range(1, SEATS + 1):
            address = f"127.0.{number // 250}.{number % 250 + 1}:10911"
            ext = {"brokerId": str(number), "brokerAddr": address, "enableActingMaster": "true"}
            answer = await peer.ask(103, BROKER_A | ext, body)
            remarks.add(answer.remark if answer.code else "")
        removed = await http.delete("/v1/clusters/DefaultCluster/brokers/broker-a/1")
        assert removed.status_code == 200, removed.text
        limited = [remark for remark in remarks if remark and "max_seats_per_group allows 64" in remark]
        assert len(limited) == SEATS - 64
        assert remarks == {"", *limited}


BODIES = (
    (SEAT, '{"address":"127.0.0.1?:10911"}'),
    (SEAT, '{"address":"127.0.0.1:10911","zone":"?"}'),
    (SEAT, '{"address":"127.0.0.1:10911","ha_address":"h?:1"}'),
    (SEAT, '{"address":"127.0.0.1:10911","filters":["?"]}'),
    (SEAT, '{"address":"127.0.0.1:10911","topics":{"?":{}}}'),
    (SEAT, '{"address":"127.0.0.1:10911","mappings":{"T":{"bname":"?"}}}'),
    (SEAT, '{"address":"127.0.0.1:10911","mappings":{"?":{"bname":"b"}}}'),
    (SEAT, '{"address":"127.0.0.1:10911","mappings":{"T":{"bname":"b","scope":"?"}}}'),
    ("/v1/topics/T", '{"queues":{"?":{}}}'),
    ("/v1/kv/ns/key", '{"value":"?"}'),
    ("/v1/settings/broker_timeout_ms", '{"value":"?"}'),
)


async def test_a_lone_surrogate_is_invalid_input(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    async with (
        attacked_service(store_url, namespace_name, tmp_path) as service,
        httpx.AsyncClient(base_url=service.http, trust_env=False) as http,
    ):
        headers = {"content-type": "application/json"}
        known = await http.put(SEAT, content='{"address":"127.0.0.1:10911"}', headers=headers)
        assert known.status_code == 200
        for path, body in BODIES:
            answer = await http.put(path, content=body.replace("?", LONE_SURROGATE), headers=headers)
            assert 400 <= answer.status_code < 500, (body, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
        assert "Traceback" not in service.log
