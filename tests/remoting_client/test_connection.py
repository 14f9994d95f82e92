"""Every call ends with its response, at its deadline, or when the connection is lost."""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from routebook.errors import InvalidInputError, PeerUnavailableError
from routebook.remoting_client import RemotingClient
from tests.protocol.golden_frames import golden_frames
from tests.protocol.plain_frames import binary_header, framed
from tests.support.peers import Peer, server_playing
from tests.support.waiting import until

ROUTE_OF_TOPIC_A = golden_frames()["E3"]
"""The response to the request with number 1."""
NOT_SUPPORTED = golden_frames()["E9b"]
"""The response to the request with number 7."""


def response(opaque: int, body: bytes = b"", code: int = 0) -> bytes:
    return framed(b'{"code":%d,"flag":1,"language":"JAVA","opaque":%d,"version":479}' % (code, opaque), body)


async def test_the_recorded_response_of_a_real_server_is_received() -> None:
    async def play(caller: Peer) -> None:
        await caller.frame()
        await caller.send(response(0))
        assert b'"topic":"TopicA"' in await caller.frame()
        await caller.send(ROUTE_OF_TOPIC_A)

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        await client.request(106)
        found = await client.request(105, ext={"topic": "TopicA"})
        assert found.code == 0
        assert found.body.startswith(b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"}')


async def test_a_request_has_the_expected_bytes() -> None:
    received: list[bytes] = []

    async def play(caller: Peer) -> None:
        received.append(await caller.frame())
        await caller.send(response(0))

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        await client.request(105, ext={"topic": "TopicA"}, body=b"{}")
    header_length = int.from_bytes(received[0][4:8], "big")
    header, body = received[0][8 : 8 + header_length], received[0][8 + header_length :]
    assert header == (
        b'{"code":105,"extFields":{"topic":"TopicA"},"flag":0,"language":"JAVA","opaque":0,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert body == b"{}"


async def test_responses_are_matched_by_opaque_in_any_order_and_encoding() -> None:
    async def play(caller: Peer) -> None:
        for _ in range(3):
            await caller.frame()
        await caller.send(response(2, b"third"), framed(binary_header(0, opaque=0, flag=1), b"first", 1))
        await caller.send(response(1, b"second"))

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        found = await asyncio.gather(*(client.request(code) for code in (106, 206, 304)))
    assert [response.body for response in found] == [b"first", b"second", b"third"]


async def test_a_code_other_than_0_is_a_response_like_any_other() -> None:
    async def play(caller: Peer) -> None:
        for opaque in range(7):
            await caller.frame()
            await caller.send(response(opaque, code=1500))
        await caller.frame()
        await caller.send(NOT_SUPPORTED)

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        assert [(await client.request(105)).code for _ in range(7)] == [1500] * 7
        found = await client.request(1234)
        assert (found.code, found.remark) == (3, " request type 1234 not supported")


async def test_a_late_response_is_dropped_and_the_connection_remains_usable() -> None:
    late = asyncio.Event()

    async def play(caller: Peer) -> None:
        await caller.frame()
        await late.wait()
        await caller.send(response(0, b"late"))
        await caller.frame()
        await caller.send(response(1, b"in time"))

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        with pytest.raises(PeerUnavailableError, match="no answer to request 106 within 20 ms"):
            await client.request(106, timeout_ms=20)
        late.set()
        assert (await client.request(106)).body == b"in time"


async def test_a_cancelled_call_does_not_affect_other_calls() -> None:
    async def play(caller: Peer) -> None:
        await caller.frame()
        await caller.frame()
        await caller.send(response(0), response(1, b"for the other call"))

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        cancelled = asyncio.create_task(client.request(106))
        await asyncio.sleep(0)
        other = asyncio.create_task(client.request(206))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert (await other).body == b"for the other call"
        with pytest.raises(asyncio.CancelledError):
            await cancelled


async def test_a_broken_connection_fails_all_current_and_later_calls() -> None:
    async def play(caller: Peer) -> None:
        await caller.frame()
        await caller.frame()
        caller.abort()

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        outcomes = await asyncio.gather(client.request(106), client.request(206), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [PeerUnavailableError, PeerUnavailableError]
        assert not client.is_open
        with pytest.raises(PeerUnavailableError):
            await client.request(106)
        with pytest.raises(PeerUnavailableError):
            await client.send_oneway(904)


async def test_a_connection_closed_by_the_peer_is_closed() -> None:
    async def play(caller: Peer) -> None:
        await caller.close()

    async with server_playing(play) as address:
        client = await RemotingClient.connect(address)
        await until(lambda: not client.is_open)
        with pytest.raises(PeerUnavailableError, match="it closed the connection"):
            await client.request(106)
        await client.close()


@pytest.mark.parametrize("nonsense", [b"HTTP/1.1 400 Bad Request\r\n\r\n", framed(b"{no header"), b"\x7f\xff\xff\xff"])
async def test_a_peer_with_another_protocol_is_unavailable(nonsense: bytes) -> None:
    async def play(caller: Peer) -> None:
        await caller.frame()
        await caller.send(nonsense)
        assert await caller.read_to_end() == b""

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        with pytest.raises(PeerUnavailableError, match="it violated the protocol"):
            await client.request(106)


async def test_one_way_requests_are_sent_before_the_connection_closes() -> None:
    received: list[bytes] = []

    async def play(caller: Peer) -> None:
        received.append(await caller.frame())
        assert await caller.read_to_end() == b""

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        await client.send_oneway(905, ext={"minBrokerId": "0"}, body=b"x" * 1_000_000)
    assert received[0].endswith(b"x" * 1_000_000)
    assert b'"flag":2' in received[0][:200]


async def test_calls_to_a_peer_that_reads_nothing_end_at_their_deadline() -> None:
    finished = asyncio.Event()

    async def play(caller: Peer) -> None:
        await finished.wait()
        caller.abort()

    async with server_playing(play) as address:
        client = await RemotingClient.connect(address)
        await client.send_oneway(905, body=b"x" * 16_000_000)
        with pytest.raises(PeerUnavailableError, match="request 905 not sent within 20 ms"):
            await client.send_oneway(905, timeout_ms=20)
        with pytest.raises(PeerUnavailableError, match="no answer to request 106 within 20 ms"):
            await client.request(106, timeout_ms=20)
        await client.close()
        finished.set()


async def test_closing_fails_pending_calls() -> None:
    async def play(caller: Peer) -> None:
        await caller.frame()
        assert await caller.read_to_end() == b""

    async with server_playing(play) as address:
        client = await RemotingClient.connect(address)
        pending = asyncio.create_task(client.request(106))
        await asyncio.sleep(0)
        await client.close()
        await client.close()
        with pytest.raises(PeerUnavailableError, match="closed by us"):
            await pending


async def test_requests_from_the_peer_are_ignored() -> None:
    async def play(caller: Peer) -> None:
        await caller.frame()
        await caller.send(golden_frames()["E10"], response(12345), response(0, b"ours"))

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        assert (await client.request(106)).body == b"ours"


async def test_the_error_without_a_listener_has_the_address() -> None:
    async with server_playing(lambda _: asyncio.sleep(0)) as address:
        pass
    with pytest.raises(PeerUnavailableError) as caught:
        await RemotingClient.connect(address)
    assert caught.value.address == address


async def test_an_unknown_host_name_is_unavailable() -> None:
    with pytest.raises(PeerUnavailableError):
        await RemotingClient.connect(f"{'x' * 70}.invalid:9876")


@pytest.mark.parametrize("address", ["localhost", "localhost:", "localhost:0", "http://localhost:9876", ":9876"])
async def test_an_invalid_address_is_an_error_of_the_caller(address: str) -> None:
    with pytest.raises(InvalidInputError):
        await RemotingClient.connect(address)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl binary to make certificates with")
async def test_the_connection_can_be_encrypted(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    client_tls = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))

    async def play(caller: Peer) -> None:
        await caller.frame()
        await caller.send(response(0, b"encrypted"))
        assert await caller.read_to_end() == b""

    async with (
        server_playing(play, server_tls) as address,
        await RemotingClient.connect(address, tls=client_tls) as client,
    ):
        assert (await client.request(106)).body == b"encrypted"


async def test_tls_with_a_plain_peer_fails() -> None:
    async def play(caller: Peer) -> None:
        await caller.send(response(0))

    async with server_playing(play) as address:
        with pytest.raises(PeerUnavailableError):
            await RemotingClient.connect(address, tls=ssl.create_default_context())


async def test_an_unanswered_handshake_ends_at_the_deadline() -> None:
    async def play(caller: Peer) -> None:
        assert await caller.read_to_end() != b""

    async with server_playing(play) as address:
        with pytest.raises(PeerUnavailableError, match="no connection within 50 ms"):
            await RemotingClient.connect(address, tls=ssl.create_default_context(), timeout_ms=50)


def make_certificate(folder: Path) -> None:
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"), "-days", "2", "-subj", "/CN=peer"),
        *("-addext", "subjectAltName=IP:127.0.0.1"),
    ]
    subprocess.run(command, check=True, capture_output=True)
