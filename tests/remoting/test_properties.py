"""The effect of each property of Apache's name server on the port."""

import json
import socket

import pytest

from tests.remoting.port import lookup, register, registration_body, remoting_port, route, topic
from tests.support.peers import Peer
from tests.support.waiting import until


async def test_support_acting_master_shows_the_smallest_id_as_master(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, support_acting_master="true") as port,
        await Peer.connect(port.address) as peer,
    ):
        await register(peer, enableActingMaster="true")
        await register(peer, enableActingMaster="true", brokerId="1", brokerAddr="127.0.0.12:10911")
        await peer.ask(
            104,
            {"clusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0"}
            | {"brokerAddr": "127.0.0.11:10911"},
        )

        async def is_promoted() -> object:
            found = await route(peer, "TopicA")
            addresses = found["brokerDatas"][0]["brokerAddrs"]
            return (addresses, found["queueDatas"][0]["perm"]) == ({"0": "127.0.0.12:10911"}, 4)

        await until(is_promoted)
        # The tables keep the true ids.
        assert b'{1:"127.0.0.12:10911"}' in (await peer.ask(106)).body


@pytest.mark.parametrize(("value", "shown"), [("true", "broker-a:8"), ("false", None)])
async def test_order_message_enable(value: str, shown: str | None, store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, order_message_enable=value) as port,
        await Peer.connect(port.address) as peer,
    ):
        await peer.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicA", "value": "broker-a:8"})
        await register(peer)
        assert (await route(peer, "TopicA")).get("orderTopicConf") == shown


async def test_return_order_topic_config_to_broker(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, return_order_topic_config_to_broker="false") as port,
        await Peer.connect(port.address) as peer,
    ):
        await peer.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicA", "value": "broker-a:8"})
        assert (await register(peer)).body == b""


@pytest.mark.parametrize(
    ("setting", "codes"), [("enable_all_topic_list", {206}), ("enable_topic_list", {224, 311, 312, 313})]
)
async def test_lists_can_be_switched_off(setting: str, codes: set[int], store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, **{setting: "false"}) as port,
        await Peer.connect(port.address) as peer,
    ):
        for code in (206, 224, 304, 311, 312, 313):
            answer = await peer.ask(code)
            assert (answer.code, answer.remark) == ((1, "disable") if code in codes else (0, None))


async def test_need_wait_for_service_concerns_lookups_only(store_url: str, namespace_name: str) -> None:
    waits = {"need_wait_for_service": "true", "wait_seconds_for_service": 2}
    async with remoting_port(store_url, namespace_name, **waits) as port, await Peer.connect(port.address) as peer:
        assert (await register(peer)).code == 0
        for name in ("TopicA", "NoSuch"):
            answer = await lookup(peer, name)
            assert (answer.code, answer.remark) == (1, "name server not ready")
        assert (await peer.ask(206)).code == 0

        async def is_ready() -> bool:
            return (await lookup(peer, "TopicA")).code == 0

        await until(is_ready)
        assert (await lookup(peer, "NoSuch")).code == 17


async def test_delete_topic_with_broker_registration(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, delete_topic_with_broker_registration="true") as port,
        await Peer.connect(port.address) as peer,
    ):
        await register(peer, "TopicA", "TopicB", "TopicC")
        await register(peer, "TopicA", "TopicB", counter=2)
        assert (await lookup(peer, "TopicC")).code == 17
        assert (await lookup(peer, "TopicB")).code == 0
        # As the documents warn: a registration of a part of the topics deletes the others.
        await register(peer, "TopicD", counter=3)
        assert (await lookup(peer, "TopicB")).code == 17
        assert (await lookup(peer, "TopicD")).code == 0


async def test_unregister_broker_queue_capacity(store_url: str, namespace_name: str) -> None:
    bounds = {"unregister_broker_queue_capacity": 1, "default_thread_pool_nums": 64}
    async with remoting_port(store_url, namespace_name, **bounds) as port:
        peers = [await Peer.connect(port.address) for _ in range(20)]
        for number, peer in enumerate(peers):
            ext = {"clusterName": "c", "brokerName": f"b{number}", "brokerAddr": "127.0.0.9:1", "brokerId": "0"}
            peer.write(peer.request(104, ext))
        answers = [await peer.answer() for peer in peers]
        codes = [answer.code for answer in answers]
        assert set(codes) == {0, 1}
        refusal = "1 unregistrations wait already (unregister_broker_queue_capacity)"
        assert {(answer.code, answer.remark) for answer in answers} == {(0, None), (1, refusal)}
        refusals = port.worker.registry.audit.take_refusals()
        assert [(one.count, one.reason) for one in refusals] == [(codes.count(1), refusal)]
        for peer in peers:
            peer.abort()


async def test_a_full_pool_answers_that_it_is_busy(store_url: str, namespace_name: str) -> None:
    """Only in a cluster test do lookups use a pool; otherwise they are answered as they arrive."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        upstream = f"127.0.0.1:{silent.getsockname()[1]}"
        bounds = {"client_request_thread_pool_nums": 1, "client_request_thread_pool_queue_capacity": 2}
        async with (
            remoting_port(
                store_url, namespace_name, cluster_test="true", cluster_test_upstream=upstream, **bounds
            ) as port,
            await Peer.connect(port.address) as peer,
        ):
            peer.write(b"".join(peer.request(105, {"topic": "NoSuch"}) for _ in range(5)))
            codes = [(await peer.answer()).code for _ in range(2)]
            assert codes == [2, 2]


async def test_cluster_test_asks_another_name_server(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name + "-up") as upstream,
        remoting_port(store_url, namespace_name, cluster_test="true", cluster_test_upstream=upstream.address) as port,
        await Peer.connect(upstream.address) as above,
        await Peer.connect(port.address) as peer,
    ):
        await register(above)
        await register(peer, "Own", "Other", brokerName="broker-b", brokerAddr="127.0.0.12:10911")
        assert b"broker-a" in (await lookup(peer, "TopicA")).body
        # Its own topics are answered in the plain dialect, whatever the version.
        assert b'{0:"127.0.0.12:10911"}' in (await lookup(peer, "Own")).body
        missing = await lookup(peer, "NoSuch")
        assert missing.code == 17
        assert "NoSuch" in (missing.remark or "")


async def test_a_cluster_test_without_an_answer_does_not_say_that_a_topic_does_not_exist(
    store_url: str, namespace_name: str
) -> None:
    warming_up = {"need_wait_for_service": "true", "wait_seconds_for_service": 600}
    async with (
        remoting_port(store_url, namespace_name + "-up", **warming_up) as upstream,
        remoting_port(store_url, namespace_name, cluster_test="true", cluster_test_upstream=upstream.address) as port,
        await Peer.connect(port.address) as peer,
    ):
        assert (await lookup(peer, "NoSuch")).code == 1


@pytest.mark.parametrize(
    ("name", "body", "code", "remark"),
    [
        ("wipes", b"enableTopicList=false\n", 0, None),
        ("comments", b"# nothing\n! at all\n", 0, None),
        ("unknown keys", b"noSuchKey=1\n", 0, None),
        ("a wrong type", b"waitSecondsForService=soon\n", 0, None),
        ("nothing", b"", 0, None),
        (
            "a black-listed key",
            b"enableTopicList=false\nkvConfigPath=/etc/passwd\n",
            16,
            "Can not update config in black list.",
        ),
        ("broken text", b"enableTopicList=\\u12\n", 1, "string2Properties error"),
    ],
)
async def test_configuration_updates(
    name: str, body: bytes, code: int, remark: str | None, store_url: str, namespace_name: str
) -> None:
    async with (
        remoting_port(store_url, namespace_name, remoting_config_updates="true") as port,
        await Peer.connect(port.address) as peer,
    ):
        answer = await peer.ask(318, body=body)
        assert (answer.code, answer.remark) == (code, remark)
        listed = (await peer.ask(224)).code
        assert listed == (1 if name == "wipes" else 0)


async def test_an_update_says_when_a_flag_of_this_worker_takes_precedence(store_url: str, namespace_name: str) -> None:
    flags = {"remoting_config_updates": "true", "enable_topic_list": "true"}
    async with remoting_port(store_url, namespace_name, **flags) as port, await Peer.connect(port.address) as peer:
        answer = await peer.ask(318, body=b"enableTopicList=false\norderMessageEnable=true\n")
        fixed = "enable_topic_list (the flag --enable-topic-list takes precedence)"
        assert (answer.code, answer.remark) == (1, f"Stored, but without effect on this worker: {fixed}.")
        assert (await peer.ask(224)).code == 0
        assert port.worker.live.current.order_message_enable


async def test_configuration_updates_are_refused_unless_a_setting_allows_them(
    store_url: str, namespace_name: str
) -> None:
    async with remoting_port(store_url, namespace_name) as port, await Peer.connect(port.address) as peer:
        assert (await peer.ask(318, body=b"enableTopicList=false\n")).code == 16
        assert (await peer.ask(224)).code == 0


async def test_the_configuration_is_shown_as_properties(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, support_acting_master="true", admin_token="hunter2") as port,
        await Peer.connect(port.address) as peer,
    ):
        text = (await peer.ask(319)).body.decode()
        lines = text.splitlines()
        assert lines == sorted(lines, key=lambda line: line.partition("=")[0])
        shown = dict(line.split("=", 1) for line in lines)
        assert shown["supportActingMaster"] == "true"
        assert shown["listenPort"]
        assert "hunter2" not in text


async def test_serialize_type_decides_the_encoding_of_all_answers(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, serialize_type="ROCKETMQ") as port,
        await Peer.connect(port.address) as peer,
    ):
        peer.write(peer.request(206))
        assert (await peer.frame())[4] == 1


async def test_broker_timeout_and_zone_of_a_registration(store_url: str, namespace_name: str) -> None:
    async with remoting_port(store_url, namespace_name) as port, await Peer.connect(port.address) as peer:
        await register(peer, heartbeatTimeoutMillis="10000", __ZONE_NAME="az-1")
        (instance,) = port.worker.replica.view.instances.values()
        assert instance.timeout_ms == 10_000
        await register(peer, body=registration_body(topic("TopicA"), topic("TopicB"), counter=2))
        (instance,) = port.worker.replica.view.instances.values()
        assert instance.timeout_ms == 120_000
        assert "zoneName" not in json.dumps(await route(peer, "TopicA"))
