"""Store addresses: what is accepted, what is refused, and that no secret is printed."""

import pytest

from routebook.errors import SettingsError
from routebook.store.connection.url import Address, Credentials, Layout, StoreUrl, TlsOptions

SECRET = "s3cret"


def test_a_single_server_has_default_port_and_database() -> None:
    url = StoreUrl.parse("redis://store")
    assert (url.layout, url.addresses, url.db, url.tls) == (Layout.SINGLE, (Address("store", 6379),), 0, None)


def test_user_password_port_and_database_are_read() -> None:
    url = StoreUrl.parse("redis://worker:p%40ss%3A%2F@10.0.0.1:7000/3")
    assert url.addresses == (Address("10.0.0.1", 7000),)
    assert url.credentials == Credentials("worker", "p@ss:/")
    assert url.db == 3


def test_a_password_alone_is_for_the_default_user() -> None:
    assert StoreUrl.parse(f"redis://:{SECRET}@store").credentials == Credentials(None, SECRET)


def test_an_ipv6_address_is_in_brackets() -> None:
    url = StoreUrl.parse("redis://[::1]:7000")
    assert url.addresses == (Address("::1", 7000),)
    assert url.masked() == "redis://[::1]:7000"


def test_a_socket_has_a_path_and_an_optional_database() -> None:
    url = StoreUrl.parse(f"unix://:{SECRET}@/run/redis.sock?db=2")
    assert (url.socket_path, url.db, url.addresses) == ("/run/redis.sock", 2, ())
    assert url.credentials.password == SECRET


def test_sentinels_have_their_own_port_master_and_credentials() -> None:
    url = StoreUrl.parse("sentinel://worker:a@s1,s2:7001/mymaster/4?sentinel_username=watch&sentinel_password=b")
    assert url.layout is Layout.SENTINEL
    assert url.addresses == (Address("s1", 26379), Address("s2", 7001))
    assert (url.master, url.db) == ("mymaster", 4)
    assert url.credentials == Credentials("worker", "a")
    assert url.sentinel_credentials == Credentials("watch", "b")


def test_a_cluster_names_some_of_its_nodes() -> None:
    url = StoreUrl.parse("cluster://:x@n1:7000,n2:7000")
    assert url.layout is Layout.CLUSTER
    assert url.addresses == (Address("n1", 7000), Address("n2", 7000))


@pytest.mark.parametrize("scheme", ["rediss://h", "sentinels://h/m", "clusters://h"])
def test_tls_verifies_by_default(scheme: str) -> None:
    assert StoreUrl.parse(scheme).tls == TlsOptions(cert_reqs="required", check_hostname=True)


def test_tls_options_are_in_the_query() -> None:
    url = StoreUrl.parse(
        f"rediss://h?ssl_ca_certs=/ca.pem&ssl_certfile=/c&ssl_keyfile=/k&ssl_password={SECRET}&ssl_check_hostname=false"
    )
    assert url.tls == TlsOptions("/ca.pem", "/c", "/k", SECRET, "required", check_hostname=False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("http://h", "is not an address"),
        ("h:6379", "is not an address"),
        ("", "is not an address"),
        ("redis://", "names no host"),
        ("redis://a,b", "several hosts"),
        ("redis://h:0", "port from 1 to 65535"),
        ("redis://h:65536", "port from 1 to 65535"),
        ("redis://::1", "[IPv6]:port"),
        ("redis://h/x", "a database that is not a number"),
        ("redis://h/0/1", "more in its path"),
        ("redis://h?timeout=1", "option timeout"),
        ("redis://h?ssl_ca_certs=/x", "option ssl_ca_certs"),
        ("redis://password@h", "a user but no password"),
        ("unix://relative/path", "absolute socket path"),
        ("sentinel://h", "names no master"),
        ("cluster://h/1", "only database 0"),
        ("rediss://h?ssl_cert_reqs=maybe", "ssl_cert_reqs"),
        ("rediss://h?ssl_check_hostname=maybe", "ssl_check_hostname"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_is_allowed(text: str, says: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        StoreUrl.parse(text)
    assert says in refusal.value.message
    assert "redis[s]://" in refusal.value.advice


@pytest.mark.parametrize(
    "text",
    [
        f"redis://worker:{SECRET}@h/x",
        f"redis://{SECRET}@h",
        f"http://worker:{SECRET}@h",
        f"redis://worker:{SECRET}/@h",
        f"sentinel://h?sentinel_password={SECRET}",
    ],
)
def test_a_refusal_never_repeats_a_password(text: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        StoreUrl.parse(text)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"redis://worker:{SECRET}@h:1/2", "redis://worker:***@h:1/2"),
        (f"rediss://:{SECRET}@h", "rediss://:***@h:6379"),
        (f"unix://:{SECRET}@/r.sock?db=1", "unix://:***@/r.sock?db=1"),
        (f"sentinel://h/m?sentinel_password={SECRET}", "sentinel://h:26379/m"),
        (f"clusters://u:{SECRET}@h?ssl_password={SECRET}", "clusters://u:***@h:6379"),
    ],
)
def test_no_printed_form_has_a_secret(text: str, shown: str) -> None:
    url = StoreUrl.parse(text)
    assert url.masked() == str(url) == f"{url}" == shown
    assert SECRET not in repr(url)
