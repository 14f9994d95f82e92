"""A6: another host may not change the fleet by hand over port 9876, nor read what HTTP guards."""

from pathlib import Path

from tests.attacks.attacked_service import ATTACKER, attacked_service, connect
from tests.remoting.port import lookup, register, route

VALUE = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicA", "value": "broker-a:4"}
TOPIC_OF_OTHERS = b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'
ATTACKS: tuple[tuple[int, dict[str, str], bytes], ...] = (
    (205, {"brokerName": "broker-a"}, b""),
    (327, {"brokerName": "broker-a"}, b""),
    (216, {"topic": "TopicA"}, b""),
    (216, {"topic": "TopicA", "clusterName": "DefaultCluster"}, b""),
    (217, {"topic": "Added"}, TOPIC_OF_OTHERS),
    (100, VALUE, b""),
    (101, VALUE, b""),
    (102, VALUE, b""),
    (219, VALUE, b""),
    (318, {}, b"enableTopicList=false\n"),
)


async def test_administrative_requests_of_another_host_are_refused(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    flags = ("--bind-address", "0.0.0.0", "--remoting-config-updates", "true")
    async with (
        attacked_service(store_url, namespace_name, tmp_path, *flags) as service,
        await connect(service) as broker,
        await connect(service, source=ATTACKER) as attacker,
    ):
        assert (await register(broker)).code == 0
        before = await route(broker, "TopicA")
        for code, ext, body in ATTACKS:
            answer = await attacker.ask(code, ext, body)
            assert answer.code == 16, (code, answer)
            assert "remoting_admin" in (answer.remark or ""), answer
        assert await route(broker, "TopicA") == before
        assert (await lookup(attacker, "Added")).code == 17
        assert (await attacker.ask(224, {"cluster": "DefaultCluster"})).code == 0


async def test_one_setting_brings_the_openness_of_apaches_back(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    flags = ("--bind-address", "0.0.0.0", "--remoting-config-updates", "true", "--remoting-admin", "open")
    async with (
        attacked_service(store_url, namespace_name, tmp_path, *flags) as service,
        await connect(service) as broker,
        await connect(service, source=ATTACKER) as other,
    ):
        assert (await register(broker)).code == 0
        codes = [(await other.ask(code, ext, body)).code for code, ext, body in ATTACKS]
        assert set(codes) <= {0, 22}
