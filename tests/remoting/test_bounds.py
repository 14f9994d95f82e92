"""The limits of the port: queues, buffers, idle connections, incomplete frames. Other peers are served meanwhile."""

import asyncio
import socket

import pytest

from routebook.remoting import port as port_module
from routebook.remoting import server as server_module
from tests.remoting.port import PortUnderTest, lookup, register, registration_body, remoting_port, topic
from tests.support.peers import Peer
from tests.support.waiting import until


@pytest.fixture
def quick_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_module, "SWEEP_S", 0.05)


async def test_a_full_queue_answers_busy_at_once_and_lookups_go_on(store_url: str, namespace_name: str) -> None:
    bounds = {"default_thread_pool_nums": 1, "default_thread_pool_queue_capacity": 3}
    async with remoting_port(store_url, namespace_name, **bounds) as port, await Peer.connect(port.address) as peer:
        await register(peer)
        lists = [peer.request(206) for _ in range(20)]
        peer.write(b"".join([*lists, peer.request(105, {"topic": "TopicA"})]))
        answers = [await peer.answer() for _ in range(21)]
        codes = [answer.code for answer in sorted(answers, key=lambda answer: answer.opaque)]
        assert codes[-1] == 0
        assert 16 <= codes.count(2) <= 17  # One runs and three wait; the first may have been taken already.
        refused = next(answer for answer in answers if answer.code == 2)
        assert refused.remark == "[OVERLOAD]system busy, start flow control for a while"
        assert b"remoting_overloaded_total" in port.metrics.exposition()
        assert [one.count for one in port.worker.registry.audit.take_refusals()] == [codes.count(2)]
        assert (await peer.ask(206)).code == 0


async def test_a_full_queue_drops_oneways_silently(store_url: str, namespace_name: str) -> None:
    bounds = {"default_thread_pool_nums": 1, "default_thread_pool_queue_capacity": 1}
    async with remoting_port(store_url, namespace_name, **bounds) as port, await Peer.connect(port.address) as peer:
        peer.write(b"".join(peer.request(904, flag=2) for _ in range(20)))
        await until(lambda: port.server.port.queue.refused and not port.server.port.queue.length)
        assert (await peer.ask(206)).code == 0


@pytest.mark.parametrize(
    ("code", "ext", "body", "reason"),
    [
        (100, {"namespace": "ns", "value": "v"}, b"", "namespace or key is null"),
        (318, {}, b"a=\\u12", "string2Properties error"),
        (318, {}, b"kvConfigPath=/tmp/a", "Can not update config in black list."),
    ],
)
async def test_a_request_that_is_refused_without_an_exception_is_audited(
    code: int, ext: dict[str, str], body: bytes, reason: str, store_url: str, namespace_name: str
) -> None:
    async with (
        remoting_port(store_url, namespace_name, remoting_config_updates=True) as port,
        await Peer.connect(port.address) as peer,
    ):
        answer = await peer.ask(code, ext, body)
        assert answer.code != 0
        assert answer.remark == reason
        assert [one.reason for one in port.worker.registry.audit.take_refusals()] == [reason]


async def test_waiting_bodies_are_limited_in_bytes(store_url: str, namespace_name: str) -> None:
    bounds = {"max_frame_bytes": 1_000_000, "max_queued_bytes": 1_048_576}
    async with (
        remoting_port(store_url, namespace_name, **bounds) as port,
        await Peer.connect(port.address) as peer,
    ):
        peer.write(b"".join(peer.request(206, body=b"x" * 400_000) for _ in range(5)))
        codes = [(await peer.answer()).code for _ in range(5)]
        assert set(codes) <= {0, 2}
        assert codes.count(0) >= 2
        await until(lambda: not port.server.port.queue.queued_bytes)


async def test_a_peer_that_never_reads_is_disconnected(store_url: str, namespace_name: str, quick_sweeps: None) -> None:
    deadlines = {"incomplete_frame_timeout_ms": 300, "max_output_bytes": 65_536}
    async with remoting_port(store_url, namespace_name, **deadlines) as port:
        async with await Peer.connect(port.address) as peer:
            await register(peer, body=registration_body(*(f"T{number}" for number in range(200))))
        with socket.create_connection(("127.0.0.1", port.number)) as slow_reader:
            slow_reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow_reader.setblocking(False)
            async with await Peer.connect(port.address) as maker:
                question = maker.request(206)
            loop = asyncio.get_running_loop()
            asking = asyncio.ensure_future(loop.sock_sendall(slow_reader, question * 50_000))
            await until(lambda: port.server.port.cut["it does not take its answers"] == 1)
            asking.cancel()


async def test_an_idle_peer_that_does_not_read_is_disconnected_in_the_end(
    store_url: str, namespace_name: str, quick_sweeps: None
) -> None:
    """A close waits for the peer to read. It must neither wait forever nor be counted with every sweep."""
    deadlines = {"incomplete_frame_timeout_ms": 2_000, "server_channel_max_idle_time_seconds": 3}
    async with remoting_port(store_url, namespace_name, server_socket_snd_buf_size=65_536, **deadlines) as port:
        async with await Peer.connect(port.address) as peer:
            await register(peer, body=registration_body(*(f"T{number}" * 20 for number in range(300))))
            length = len((await peer.ask(206)).body)
            question = peer.request(206)
        with socket.socket() as slow_reader:
            slow_reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow_reader.connect(("127.0.0.1", port.number))
            # More than the buffers of the system hold, and less than what pauses our writing.
            slow_reader.sendall(question * (900_000 // length))
            await until(lambda: port.server.port.cut["idle"])
            await until(lambda: not port.server.port.connections)
            assert port.server.port.cut == {"idle": 1, "it does not take its answers": 1}


async def test_after_one_very_large_body_a_connection_is_read_from_again(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, max_frame_bytes=64 * 2**20) as port,
        await Peer.connect(port.address) as peer,
    ):
        assert (await peer.ask(206, body=b"x" * (40 * 2**20))).code == 0
        assert (await peer.ask(206)).code == 0


async def test_a_peer_that_pipelines_and_reads_late_gets_every_answer(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, max_output_bytes=65_536) as port,
        await Peer.connect(port.address) as peer,
    ):
        await register(peer)
        await register(peer, *(topic(f"T{n}") for n in range(3)), brokerName="b" * 200, brokerAddr="127.0.0.12:1")
        questions = b"".join(peer.request(105, {"topic": "TopicA"}) for _ in range(20_000))
        peer.write(questions)
        for _ in range(20_000):
            assert (await peer.answer()).code == 0


async def test_a_frame_that_is_incomplete_for_too_long_closes_the_connection(
    store_url: str, namespace_name: str, quick_sweeps: None
) -> None:
    async with (
        remoting_port(store_url, namespace_name, incomplete_frame_timeout_ms=300) as port,
        await Peer.connect(port.address) as slow,
        await Peer.connect(port.address) as well,
    ):
        await register(well)
        question = slow.request(105, {"topic": "TopicA"})
        slow.write(question + question[:40])
        assert (await slow.answer()).code == 0
        for byte in question[40:60]:
            if not slow.writer.is_closing():  # On a busy machine the deadline may have passed already.
                slow.write(bytes([byte]))
            await asyncio.sleep(0.01)
        assert await slow.is_closed()
        assert (await lookup(well, "TopicA")).code == 0


async def test_an_idle_connection_is_closed_after_the_idle_time(
    store_url: str, namespace_name: str, quick_sweeps: None
) -> None:
    async with (
        remoting_port(store_url, namespace_name, server_channel_max_idle_time_seconds=1) as port,
        await Peer.connect(port.address) as idle,
        await Peer.connect(port.address) as active,
    ):
        await idle.ask(206)
        closing = asyncio.ensure_future(idle.is_closed())
        while not closing.done():
            await active.ask(206)
            await asyncio.sleep(0.05)
        assert closing.result()
        assert (await active.ask(206)).code == 0


async def test_a_frame_that_is_too_long_is_refused_by_its_first_four_bytes(store_url: str, namespace_name: str) -> None:
    async with remoting_port(store_url, namespace_name, max_frame_bytes=1_048_576) as port:
        async with await Peer.connect(port.address) as peer:
            await register(peer)
            peer.write((1_048_576 - 4 + 1).to_bytes(4, "big"))
            assert await peer.is_closed()
        async with await Peer.connect(port.address) as peer:
            body = b'{"x":"%s"}' % (b"y" * 900_000)
            assert (await peer.ask(206, body=body)).code == 0


async def test_a_peer_that_leaves_in_the_middle_does_not_affect_others(port: PortUnderTest, peer: Peer) -> None:
    await register(peer)
    for _ in range(20):
        async with await Peer.connect(port.address) as leaving:
            leaving.write(leaving.request(206) + leaving.request(106) + leaving.request(105, {"topic": "TopicA"})[:30])
            await leaving.writer.drain()
    await until(lambda: len(port.server.port.connections) == 1)
    assert (await lookup(peer, "TopicA")).code == 0
    assert not port.server.port.queue.length


async def test_the_watermark_is_logged_as_by_apaches_name_server(
    store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "WATERMARK_AFTER_S", 0.01)
    monkeypatch.setattr(server_module, "WATERMARK_PERIOD_S", 0.01)
    with caplog.at_level("DEBUG", logger="routebook.watermark"):
        async with remoting_port(store_url, namespace_name):
            await until(lambda: "[WATERMARK]" in caplog.text)
    assert "ClientQueueSize:0 ClientQueueSlowTime:0 DefaultQueueSize:0 DefaultQueueSlowTime:0" in caplog.text


async def test_reading_continues_when_the_buffer_is_at_its_low_water_mark(store_url: str, namespace_name: str) -> None:
    marks = {"write_buffer_high_water_mark": 400_000, "write_buffer_low_water_mark": 100_000}
    async with remoting_port(store_url, namespace_name, **marks) as port, await Peer.connect(port.address) as peer:
        await register(peer)
        (connection,) = port.server.port.connections
        transport = connection._transport  # asyncio has no other place for the limits
        assert transport.get_write_buffer_limits() == (100_000, 400_000)
        peer.write(b"".join(peer.request(105, {"topic": "TopicA"}) for _ in range(5_000)))
        for _ in range(5_000):
            assert (await peer.answer()).code == 0


async def test_incomplete_frames_share_a_limit_and_the_largest_is_dropped_first(
    store_url: str, namespace_name: str, quick_sweeps: None
) -> None:
    bounds = {"max_frame_bytes": 900_000, "max_queued_bytes": 1_048_576}
    async with (
        remoting_port(store_url, namespace_name, **bounds) as port,
        await Peer.connect(port.address) as large,
        await Peer.connect(port.address) as larger,
        await Peer.connect(port.address) as small,
    ):
        frame = small.request(206, body=b"x" * 850_000)
        for peer, size in ((small, 1_000), (large, 500_000), (larger, 800_000)):
            peer.write(frame[:size])
        assert await larger.is_closed()
        for peer, size in ((large, 500_000), (small, 1_000)):
            peer.write(frame[size:])
            assert (await peer.answer()).code == 0
