"""Certificates made here, judged by OpenSSL."""

import ssl

from routebook.listeners.test_certificate import G, N, _sum, _times, issue


def test_the_group_is_the_one_of_the_standard() -> None:
    """The order of the generator, and a sum worked out in two ways."""
    assert _times(N, G) is None
    assert _times(N - 1, G) == _sum(None, (G[0], -G[1] % (2**256 - 2**224 + 2**192 + 2**96 - 1)))
    assert _sum(_times(5, G), _times(6, G)) == _times(11, G)
    # NIST's test vector for k = 112233445566778899.
    assert _times(112233445566778899, G) == (
        0x339150844EC15234807FE862A86BE77977DBFB3AE3D96F4C22795513AEAAB82F,
        0xB1C14DDFDC8EC1B2583F51E85A5EB3A155840F2034730E9B5ADA38B674336A21,
    )


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, object]:
    """In memory. What the client knows of the server afterwards."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
    ]
    for end in ends[::-1] * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return dict(ends[1].getpeercert() or {})


def test_a_chain_of_two_is_believed_under_the_strictest_rules(tmp_path) -> None:  # type: ignore[no-untyped-def]
    authority = issue("authority", signs=True)
    leaf = issue("leaf", ("localhost", "127.0.0.1", "::1"), by=authority)
    file = tmp_path / "leaf.pem"
    file.write_bytes(leaf.key + leaf.certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_verify_locations(cadata=authority.certificate.decode())
    found = handshake(server, client)
    assert found["subject"] == ((("commonName", "leaf"),),)
    assert found["issuer"] == ((("commonName", "authority"),),)
    assert found["subjectAltName"] == (
        ("DNS", "localhost"),
        ("IP Address", "127.0.0.1"),
        ("IP Address", "0:0:0:0:0:0:0:1"),
    )


def test_no_two_are_alike() -> None:
    assert len({issue("same").key for _ in range(3)}) == 3
