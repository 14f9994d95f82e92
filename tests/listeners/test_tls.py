"""TLS and plain connections on one port: modes, client certificates, and files that change meanwhile."""

import asyncio
import logging
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from cryptography import x509

from routebook.listeners import acceptor as acceptor_module
from routebook.listeners.acceptor import ConnectionLimits
from routebook.listeners.tls import ServerTls, TlsOptions, make_test_pair
from tests.listeners.authorities import Authority, Issued, replace_file, trusting
from tests.listeners.ports import Port, accepting
from tests.protocol.plain_frames import json_lookup
from tests.support.figures import Figures
from tests.support.peers import Peer
from tests.support.waiting import until

LOOKUP = json_lookup()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def write_pair(folder: Path, made: Issued, *, key: bool = True, certificate: bool = True) -> dict[str, str]:
    """Replaces the wanted files, and returns their paths as options."""
    if key:
        replace_file(folder / "key.pem", made.key)
    if certificate:
        replace_file(folder / "cert.pem", made.certificate)
    return {"key_path": str(folder / "key.pem"), "cert_path": str(folder / "cert.pem")}


async def opened(**options: Any) -> ServerTls:
    tls = ServerTls(TlsOptions(**options))
    await tls.open()
    return tls


@asynccontextmanager
async def connected(port: Port, context: ssl.SSLContext | None, first: bytes = b"") -> AsyncIterator[Peer]:
    """`first` is sent before the TLS handshake. Without a context, there is no handshake."""
    async with await Peer.connect(port.address) as peer:
        await peer.send(first)
        if context is not None:
            await peer.start_tls(context)
        yield peer


async def is_answered(port: Port, context: ssl.SSLContext | None, first: bytes = b"") -> bool:
    """Whether a request is sent back; False when the connection is closed instead."""
    try:
        async with connected(port, context, first) as peer:
            await peer.send(LOOKUP)
            return await peer.receive(len(LOOKUP)) == LOOKUP
    except (ConnectionError, ssl.SSLError):
        return False


async def name_shown(port: Port, context: ssl.SSLContext) -> str:
    async with connected(port, context) as peer:
        found = peer.writer.get_extra_info("peercert")
        return str(found["subject"][0][0][1])


@pytest.mark.parametrize(
    ("mode", "takes_tls", "takes_plain"),
    [("permissive", True, True), ("enforcing", True, False), ("disabled", False, True)],
)
async def test_the_mode_decides_which_connections_are_served(mode: str, takes_tls: bool, takes_plain: bool) -> None:
    async with accepting(tls=await opened(mode=mode)) as port:
        assert await is_answered(port, trusting()) is takes_tls
        assert await is_answered(port, None) is takes_plain
        assert [protocol.info.is_tls for protocol in port.made] == [True] * takes_tls + [False] * takes_plain
        assert port.refused("tls") == (not takes_tls)
        assert port.refused("plain") == (not takes_plain)


async def test_tls_may_follow_a_proxy_header() -> None:
    header = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9876\r\n"
    async with accepting(tls=await opened(), proxy_from=(ip_network("127.0.0.0/8"),)) as port:
        assert await is_answered(port, trusting(), header)
        assert port.made[0].info.peer == "192.0.2.7:56324"
        assert port.made[0].info.is_tls


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_1_2_and_1_3_are_supported(version: ssl.TLSVersion) -> None:
    context = trusting()
    context.minimum_version = context.maximum_version = version
    async with accepting(tls=await opened()) as port:
        assert await is_answered(port, context)


async def test_large_answers_arrive_completely() -> None:
    data = LOOKUP + bytes(3_000_000)
    async with accepting(tls=await opened()) as port, connected(port, trusting()) as peer:
        peer.write(data)
        assert await peer.receive(len(data)) == data


async def test_the_configured_certificate_is_shown(authority: Authority) -> None:
    files = write_pair(authority.folder, authority.issue("mine"))
    async with accepting(tls=await opened(test_mode=False, **files)) as port:
        assert await name_shown(port, authority.client()) == "mine"
        assert await is_answered(port, authority.client())


async def test_a_failed_handshake_is_counted_and_closes_the_connection() -> None:
    async with accepting(tls=await opened()) as port:
        async with await Peer.connect(port.address) as one:
            await one.send(b"\x16" + bytes(100))
            assert await one.is_closed()
        failed = port.metrics.registry.get_sample_value("routebook_tls_handshakes_failed_total", {"port": "remoting"})
        assert failed == 1
        await until(lambda: port.acceptor.open_connections == 0)


async def test_a_handshake_that_stalls_is_closed() -> None:
    async with (
        accepting(tls=await opened(), limits=ConnectionLimits(first_bytes_seconds=0.3)) as port,
        await Peer.connect(port.address) as one,
    ):
        await one.send(bytes.fromhex("1603010200010001fc0303") + bytes(20))
        assert await one.read_to_end() == b""
        await until(lambda: port.acceptor.open_connections == 0)


async def test_closing_the_acceptor_ends_a_handshake_in_progress() -> None:
    async with accepting(tls=await opened()) as port, await Peer.connect(port.address) as one:
        await one.send(bytes.fromhex("1603010200010001fc0303") + bytes(20))
        await until(lambda: bool(port.acceptor._pending))
        port.acceptor.close()
        await port.acceptor.wait_closed()
        assert await one.read_to_end() == b""
        await until(lambda: port.acceptor.open_connections == 0)


async def test_unfinished_handshakes_make_room_for_new_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor_module, "SPARED_SECONDS", 0.0)
    async with accepting(tls=await opened(), limits=ConnectionLimits(max_connections=2)) as port:
        async with await Peer.connect(port.address) as one, await Peer.connect(port.address) as other:
            for shaking in (one, other):
                await shaking.send(bytes.fromhex("1603010200010001fc0303") + bytes(20))
            await until(lambda: len(port.acceptor._pending) == 2)
            assert await is_answered(port, None)
            assert await is_answered(port, trusting())
            assert await one.read_to_end() == b""
            assert port.refused("spared") == 2
        await until(lambda: port.acceptor.open_connections == 0)


@pytest.mark.parametrize("wrong", ["no such file", "no certificate", "another key", "no path"])
async def test_without_a_usable_certificate_only_plain_connections_are_served(
    authority: Authority, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = write_pair(authority.folder, authority.issue("mine"))
    if wrong == "no such file":
        Path(files["key_path"]).unlink()
    elif wrong == "no certificate":
        Path(files["cert_path"]).write_text("nothing of use")
    elif wrong == "another key":
        write_pair(authority.folder, authority.issue("other"), certificate=False)
    else:
        files = {}
    tls = await opened(test_mode=False, **files)
    assert "TLS connections are closed until this works" in caplog.text
    async with accepting(tls=tls) as port:
        assert not await is_answered(port, trusting())
        assert await is_answered(port, None)
        assert port.refused("tls_unavailable") == 1
        # A good certificate is used as soon as it is there.
        write_pair(authority.folder, authority.issue("mine"))
        tls.look()
        assert await is_answered(port, trusting()) is (wrong != "no path")


@pytest.mark.parametrize(
    ("auth_client", "need", "without", "with_good", "with_foreign"),
    [
        (False, "none", True, True, True),
        (True, "none", True, True, True),
        (True, "optional", True, True, False),
        (True, "require", False, True, False),
        (False, "optional", True, True, True),
        (False, "require", True, True, True),
    ],
)
async def test_client_certificates(
    authority: Authority,
    tmp_path_factory: pytest.TempPathFactory,
    auth_client: bool,
    need: str,
    without: bool,
    with_good: bool,
    with_foreign: bool,
) -> None:
    foreign = Authority(tmp_path_factory.mktemp("foreign")).issue("stranger")
    files = write_pair(authority.folder, authority.issue("mine"))
    rule = {"auth_client": auth_client, "need_client_auth": need, "trust_path": str(authority.trust)}
    async with accepting(tls=await opened(test_mode=False, **files, **rule)) as port:
        assert await is_answered(port, authority.client()) is without
        assert await is_answered(port, authority.client(authority.issue("client"))) is with_good
        assert await is_answered(port, authority.client(foreign)) is with_foreign


@pytest.mark.skipif(which("openssl") is None, reason="needs openssl to encrypt the key")
@pytest.mark.parametrize(("password", "works"), [("open sesame", True), ("", False), ("wrong", False)])
async def test_a_key_may_have_a_password(authority: Authority, password: str, works: bool) -> None:
    files = write_pair(authority.folder, authority.issue("mine"))
    encrypt = ["openssl", "pkey", "-in", files["key_path"], "-aes256", "-passout", "pass:open sesame"]
    Path(files["key_path"]).write_bytes(subprocess.run(encrypt, check=True, capture_output=True).stdout)
    tls = await opened(test_mode=False, key_password=password, **files)
    assert (await tls.context() is not None) is works


async def test_certificate_and_key_are_replaced_together(authority: Authority) -> None:
    files = write_pair(authority.folder, authority.issue("first"))
    tls = await opened(test_mode=False, **files)
    async with accepting(tls=tls) as port:
        second = authority.issue("second")
        write_pair(authority.folder, second, key=False)
        tls.look()
        assert await name_shown(port, authority.client()) == "first"
        write_pair(authority.folder, second, certificate=False)
        tls.look()
        assert await name_shown(port, authority.client()) == "second"


async def test_files_that_do_not_fit_leave_the_last_good_certificate(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    files = write_pair(authority.folder, authority.issue("good"))
    tls = await opened(test_mode=False, **files)
    caplog.set_level(logging.INFO)
    async with accepting(tls=tls) as port:
        write_pair(authority.folder, authority.issue("one"), key=False)
        write_pair(authority.folder, authority.issue("other"), certificate=False)
        tls.look()
        tls.look()
        assert await name_shown(port, authority.client()) == "good"
        assert caplog.text.count("The last good certificate stays.") == 1
        for path in files.values():
            Path(path).unlink()
        tls.look()
        assert await name_shown(port, authority.client()) == "good"
        write_pair(authority.folder, authority.issue("new"))
        tls.look()
        assert await name_shown(port, authority.client()) == "new"


async def test_a_changed_trust_file_takes_effect_alone(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Authority(tmp_path_factory.mktemp("other"))
    trust = authority.folder / "trusted.pem"
    replace_file(trust, authority.issuer.certificate)
    files = write_pair(authority.folder, authority.issue("mine"))
    rule = {"auth_client": True, "need_client_auth": "require", "trust_path": str(trust)}
    tls = await opened(test_mode=False, **files, **rule)
    stranger = authority.client(other.issue("client"))
    async with accepting(tls=tls) as port:
        assert not await is_answered(port, stranger)
        # Half of a new pair does not keep the trust file from being read.
        write_pair(authority.folder, authority.issue("next"), certificate=False)
        replace_file(trust, other.issuer.certificate)
        tls.look()
        assert await is_answered(port, stranger)
        replace_file(trust, b"nothing of use")
        tls.look()
        assert await is_answered(port, stranger)


async def test_a_hundred_rotations_close_no_connection(authority: Authority, figure: Figures) -> None:
    """Fault 32: connections with each certificate, and a plain one, are answered throughout."""
    files = write_pair(authority.folder, authority.issue("0"))
    tls = await opened(test_mode=False, **files)
    pairs = [authority.issue("odd"), authority.issue("even")]
    async with accepting(tls=tls) as port:
        held = [connected(port, None), connected(port, authority.client())]
        ends = [await one.__aenter__() for one in held]
        for number in range(100):
            write_pair(authority.folder, pairs[number % 2])
            tls.look()
            if number % 10 == 0:
                held.append(connected(port, authority.client()))
                ends.append(await held[-1].__aenter__())
        figure("rotations", tls.loads - 1, exactly=100)
        answered = 0
        for peer in ends:
            await peer.send(LOOKUP)
            answered += await peer.receive(len(LOOKUP)) == LOOKUP
        figure("connections answered after all rotations", answered, exactly=len(ends))
        assert await name_shown(port, authority.client()) == "even"
        watching = asyncio.create_task(tls.run())
        write_pair(authority.folder, authority.issue("seen without a call"))

        async def is_new() -> bool:
            return await name_shown(port, authority.client()) == "seen without a call"

        await until(is_new)
        for one in held:
            await one.__aexit__(None, None, None)
        watching.cancel()


async def test_the_test_certificate_is_made_for_this_machine_and_is_new_each_time() -> None:
    context = trusting()
    for _ in range(2):
        async with accepting(tls=await opened()) as port, connected(port, context) as peer:
            sent = peer.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        made = x509.load_der_x509_certificate(sent)
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["localhost"]
        assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
        assert made.not_valid_before_utc < datetime.now(UTC) < made.not_valid_after_utc
    assert make_test_pair().key != make_test_pair().key


async def test_without_the_optional_package_test_mode_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    caplog.set_level(logging.INFO)
    tls = await opened()
    (record,) = [record for record in caplog.records if "pip install 'routebook[tls]'" in record.getMessage()]
    assert record.levelname == "INFO"
    async with accepting(tls=tls) as port:
        assert not await is_answered(port, trusting())
        assert await is_answered(port, None)
        assert port.refused("tls_unavailable") == 1
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["pip install 'routebook[tls]'" in text for text in warnings] == [True]
