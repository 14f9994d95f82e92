"""Every call ends: with its response, at its deadline, or with the connection."""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from routebook.client.remoting_client import RemotingClient
from routebook.errors import InvalidInputError, PeerUnavailableError
from tests.protocol.golden_frames import golden_frames
from tests.protocol.plain_frames import binary_header, framed
from tests.support.peers import Peer, server_playing
from tests.support.waiting import until

ROUTE_OF_TOPIC_A = golden_frames()["E3"]
"""To the request with number 1."""
NOT_SUPPORTED = golden_frames()["E9b"]
"""To the request with number 7."""


def response(opaque: int, body: bytes = b"", code: int = 0) -> bytes:
    return framed(b'{"code":%d,"flag":1,"language":"JAVA","opaque":%d,"version":479}' % (code, opaque), body)


async def test_a_request_gets_the_response_that_a_real_server_sends() -> None:
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


async def test_requests_are_frames_of_the_protocol() -> None:
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


async def test_responses_are_paired_by_number_in_whatever_order_and_encoding_they_come() -> None:
    async def play(caller: Peer) -> None:
        for _ in range(3):
            await caller.frame()
        await caller.send(response(2, b"third"), framed(binary_header(0, opaque=0, flag=1), b"first", 1))
        await caller.send(response(1, b"second"))

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        found = await asyncio.gather(*(client.request(code) for code in (106, 206, 304)))
    assert [one.body for one in found] == [b"first", b"second", b"third"]


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


async def test_a_late_response_is_dropped_and_the_connection_stays_good() -> None:
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


async def test_a_caller_that_gives_up_harms_nobody() -> None:
    async def play(caller: Peer) -> None:
        await caller.frame()
        await caller.frame()
        await caller.send(response(0), response(1, b"for the other"))

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        gives_up = asyncio.create_task(client.request(106))
        await asyncio.sleep(0)
        other = asyncio.create_task(client.request(206))
        await asyncio.sleep(0)
        gives_up.cancel()
        assert (await other).body == b"for the other"
        with pytest.raises(asyncio.CancelledError):
            await gives_up


async def test_a_broken_connection_fails_all_calls_and_those_to_come() -> None:
    async def play(caller: Peer) -> None:
        await caller.frame()
        await caller.frame()
        caller.abort()

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        outcomes = await asyncio.gather(client.request(106), client.request(206), return_exceptions=True)
        assert [type(one) for one in outcomes] == [PeerUnavailableError, PeerUnavailableError]
        assert not client.is_open
        with pytest.raises(PeerUnavailableError):
            await client.request(106)
        with pytest.raises(PeerUnavailableError):
            await client.send_oneway(904)


async def test_a_connection_that_the_peer_closes_is_closed_here_too() -> None:
    async def play(caller: Peer) -> None:
        await caller.close()

    async with server_playing(play) as address:
        client = await RemotingClient.connect(address)
        await until(lambda: not client.is_open)
        with pytest.raises(PeerUnavailableError, match="it closed the connection"):
            await client.request(106)
        await client.close()


@pytest.mark.parametrize("nonsense", [b"HTTP/1.1 400 Bad Request\r\n\r\n", framed(b"{no header"), b"\x7f\xff\xff\xff"])
async def test_a_peer_that_speaks_something_else_is_unavailable(nonsense: bytes) -> None:
    async def play(caller: Peer) -> None:
        await caller.frame()
        await caller.send(nonsense)
        assert await caller.read_to_end() == b""

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        with pytest.raises(PeerUnavailableError, match="it violated the protocol"):
            await client.request(106)


async def test_what_was_told_is_sent_before_the_connection_closes() -> None:
    told: list[bytes] = []

    async def play(caller: Peer) -> None:
        told.append(await caller.frame())
        assert await caller.read_to_end() == b""

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        await client.send_oneway(905, ext={"minBrokerId": "0"}, body=b"x" * 1_000_000)
    assert told[0].endswith(b"x" * 1_000_000)
    assert b'"flag":2' in told[0][:200]


async def test_a_peer_that_reads_nothing_holds_nobody_beyond_the_deadline() -> None:
    over = asyncio.Event()

    async def play(caller: Peer) -> None:
        await over.wait()
        caller.abort()

    async with server_playing(play) as address:
        client = await RemotingClient.connect(address)
        await client.send_oneway(905, body=b"x" * 16_000_000)
        with pytest.raises(PeerUnavailableError, match="request 905 not sent within 20 ms"):
            await client.send_oneway(905, timeout_ms=20)
        with pytest.raises(PeerUnavailableError, match="no answer to request 106 within 20 ms"):
            await client.request(106, timeout_ms=20)
        await client.close()
        over.set()


async def test_closing_fails_who_still_waits() -> None:
    async def play(caller: Peer) -> None:
        await caller.frame()
        assert await caller.read_to_end() == b""

    async with server_playing(play) as address:
        client = await RemotingClient.connect(address)
        waits = asyncio.create_task(client.request(106))
        await asyncio.sleep(0)
        await client.close()
        await client.close()
        with pytest.raises(PeerUnavailableError, match="closed by us"):
            await waits


async def test_requests_of_the_peer_are_not_for_us() -> None:
    async def play(caller: Peer) -> None:
        await caller.frame()
        await caller.send(golden_frames()["E10"], response(12345), response(0, b"ours"))

    async with server_playing(play) as address, await RemotingClient.connect(address) as client:
        assert (await client.request(106)).body == b"ours"


async def test_nobody_there_is_said_with_the_address() -> None:
    async with server_playing(lambda _: asyncio.sleep(0)) as address:
        pass
    with pytest.raises(PeerUnavailableError) as caught:
        await RemotingClient.connect(address)
    assert caught.value.address == address


async def test_a_name_that_nobody_has_is_unavailable() -> None:
    with pytest.raises(PeerUnavailableError):
        await RemotingClient.connect(f"{'x' * 70}.invalid:9876")


@pytest.mark.parametrize("address", ["localhost", "localhost:", "localhost:0", "http://localhost:9876", ":9876"])
async def test_an_address_that_is_none_is_a_mistake_of_the_caller(address: str) -> None:
    with pytest.raises(InvalidInputError):
        await RemotingClient.connect(address)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl binary to make certificates with")
async def test_the_connection_may_be_encrypted(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    ours = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))

    async def play(caller: Peer) -> None:
        await caller.frame()
        await caller.send(response(0, b"encrypted"))
        assert await caller.read_to_end() == b""

    async with server_playing(play, theirs) as address, await RemotingClient.connect(address, tls=ours) as client:
        assert (await client.request(106)).body == b"encrypted"


async def test_a_peer_without_encryption_is_no_encrypted_one() -> None:
    async def play(caller: Peer) -> None:
        await caller.send(response(0))

    async with server_playing(play) as address:
        with pytest.raises(PeerUnavailableError):
            await RemotingClient.connect(address, tls=ssl.create_default_context())


async def test_a_handshake_that_nobody_answers_ends_at_the_deadline() -> None:
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
