"""The hot path: lookups are answered without the store, also while it is unreachable."""

import json

from routebook.replica.feed import IN_TOUCH_MS
from routebook.store.embedded import EmbeddedStore
from tests.remoting.port import BROKER_A, PortUnderTest, lookup, register, registration_body, remoting_port
from tests.support.fault_proxy import FaultProxy
from tests.support.peers import Peer
from tests.support.ports import lasting_free_port
from tests.support.waiting import until


async def calls_so_far(port: PortUnderTest) -> int:
    info = await port.worker.client.call("INFO", "commandstats")
    text = info.decode() if isinstance(info, bytes) else str(info)
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in text.splitlines() if "calls=" in line)


async def test_lookups_send_nothing_to_the_store(namespace_name: str) -> None:
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        async with remoting_port(store.url, namespace_name) as port, await Peer.connect(port.address) as peer:
            await register(peer)
            before = await calls_so_far(port)
            for name in ("TopicA", "TopicB", "NoSuch"):
                for _ in range(333):
                    assert (await lookup(peer, name)).code == (17 if name == "NoSuch" else 0)
            # The replica and the worker's lease call the store a few times a second.
            assert await calls_so_far(port) - before < 100


async def test_without_the_store_known_topics_are_answered_and_unknown_ones_get_code_1(namespace_name: str) -> None:
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        async with (
            remoting_port(store.url, namespace_name, store_timeout_ms=300, lease_ms=2000) as port,
            await Peer.connect(port.address) as peer,
        ):
            await register(peer)
            store.stop()
            await until(lambda: port.worker.registry.stale_seconds > 0)
            assert (await lookup(peer, "TopicA")).code == 0
            unknown = await lookup(peer, "NoSuch")
            assert unknown.code == 1
            refused = await register(peer, counter=2)
            assert refused.code == 1
            assert (await peer.ask(206)).code == 0


NEED_THE_STORE = {
    100: {"namespace": "space", "key": "name", "value": "value"},
    102: {"namespace": "space", "key": "name"},
    104: BROKER_A,
    205: {"brokerName": "broker-a"},
    216: {"topic": "TopicA"},
    322: BROKER_A,
    327: {"brokerName": "broker-a"},
    904: BROKER_A,
}


async def test_what_needs_the_store_is_refused_without_it(namespace_name: str) -> None:
    """docs/compatibility.md has the list."""
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        async with (
            remoting_port(store.url, namespace_name, store_timeout_ms=300, remoting_admin="open") as port,
            await Peer.connect(port.address) as peer,
        ):
            await register(peer)
            store.stop()
            await until(lambda: port.worker.client.answer_age_ms() > IN_TOUCH_MS + 300)
            assert (await register(peer, counter=2)).code == 1
            version = json.dumps({"counter": 1, "stateVersion": 0, "timestamp": 1}).encode()
            bodies = {322: version}
            answers = {code: await peer.ask(code, ext, bodies.get(code, b"")) for code, ext in NEED_THE_STORE.items()}
            assert {code: answer.code for code, answer in answers.items()} == dict.fromkeys(NEED_THE_STORE, 1)
            assert all("store" in (answer.remark or "") for answer in answers.values())
            assert (await lookup(peer, "TopicA")).code == 0


async def test_while_the_store_does_not_answer_writes_are_refused_at_once(store_url: str, namespace_name: str) -> None:
    """Each call to the store would wait for a second, and forty in a row longer than a peer waits."""
    async with (
        FaultProxy.before(store_url) as proxy,
        remoting_port(proxy.url, namespace_name, default_thread_pool_nums=2) as port,
        await Peer.connect(port.address) as peer,
    ):
        await register(peer)
        proxy.stall()
        client = port.worker.client
        await until(lambda: client.answer_age_ms() > IN_TOUCH_MS + 1000)
        peers = [await Peer.connect(port.address) for _ in range(40)]
        for number, one in enumerate(peers):
            one.write(one.request(103, BROKER_A | {"brokerName": f"broker-{number}"}, registration_body("A", "B")))
            one.write(one.request(904, BROKER_A))
        answers = [await one.answer() for one in peers for _ in range(2)]
        assert {answer.code for answer in answers} == {1}
        assert "The store has not answered for" in (answers[0].remark or "")
        for one in peers:
            one.abort()
        proxy.heal()

        async def is_accepted() -> bool:
            return (await register(peer, counter=2)).code == 0

        await until(is_accepted)


async def test_a_worker_cut_off_from_the_store_closes_the_connections_of_brokers(
    store_url: str, namespace_name: str
) -> None:
    """Also that of a new broker: behind the balancer there are workers that can store its registration."""
    async with (
        FaultProxy.before(store_url) as proxy,
        remoting_port(proxy.url, namespace_name, store_cut_off_ms=4_000) as port,
    ):
        proxy.stall()
        await until(lambda: port.worker.client.answer_age_ms() > 4_000)
        async with await Peer.connect(port.address) as client, await Peer.connect(port.address) as broker:
            assert (await register(broker)).code == 1
            assert await broker.is_closed()
            assert (await lookup(client, "TopicA")).code == 1
        proxy.heal()


async def test_lookups_are_counted_by_their_result(port: PortUnderTest, peer: Peer) -> None:
    await register(peer)
    for name in ("TopicA", "TopicA", "NoSuch"):
        await lookup(peer, name)
    text = port.metrics.exposition().decode()
    assert 'routebook_lookups_total{port="remoting",result="found"} 2.0' in text
    assert 'routebook_lookups_total{port="remoting",result="not_found"} 1.0' in text


async def test_answers_to_one_chunk_carry_the_numbers_of_their_requests(peer: Peer) -> None:
    await register(peer)
    names = ["TopicA", "NoSuch", "TopicB"] * 50
    peer.write(b"".join(peer.request(105, {"topic": name}) for name in names))
    answers = [await peer.answer() for _ in names]
    first = answers[0].opaque
    assert [answer.opaque for answer in answers] == list(range(first, first + len(names)))
    assert [answer.code for answer in answers] == [17 if name == "NoSuch" else 0 for name in names]
    assert json.loads(answers[0].body)["queueDatas"]
