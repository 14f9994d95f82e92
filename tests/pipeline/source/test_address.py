"""The pipeline takes the same store addresses as the service, and they lead to the same servers."""

from typing import Any

import pytest
from redis.utils import HIREDIS_AVAILABLE

from routebook.errors import SettingsError
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook_pipeline.errors import UnreachableError, WrongUsageError
from routebook_pipeline.source.address import open_client
from routebook_pipeline.source.stream import EntryId, StreamReader, key_of
from tests.pipeline.source.streams import BEGAN_MS, URL_ENV
from tests.support.topologies import ClusterTrio, SentinelTrio, ask

WRONG = [
    "",
    "hunter2",
    "http://hunter2",
    "REDIS://hunter2",
    "unixs:///hunter2",
    "redis://user:hunter2@",
    "redis://hunter2@somewhere",
    "redis://user:@hunter2",
    "redis://a,hunter2",
    "redis://hunter2:99999",
    "redis://hunter2:0",
    "redis://a/hunter2",
    "redis://a/1/hunter2",
    "redis://a?hunter2=1",
    "redis://a?ssl_ca_certs=hunter2",
    "rediss://a?ssl_cert_reqs=hunter2",
    "rediss://a?ssl_check_hostname=hunter2",
    "unix://hunter2/run/store.sock",
    "unix://",
    "sentinel://hunter2",
    "sentinel://hunter2/master/db",
    "cluster://hunter2/1",
    "cluster://hunter2?db=1",
]


@pytest.mark.parametrize("address", WRONG)
def test_an_address_that_the_service_refuses_is_refused(address: str) -> None:
    with pytest.raises(SettingsError):
        StoreUrl.parse(address)
    with pytest.raises(WrongUsageError, match=r"redis\[s\]://") as raised:
        open_client(address)
    assert "hunter2" not in str(raised.value).replace("option hunter2", "")


RIGHT = [
    "redis://127.0.0.1",
    "redis://127.0.0.1:6380/3",
    "redis://:pass@[::1]:6380",
    "redis://us%20er:p%40ss@127.0.0.1:6380/1",
    "rediss://127.0.0.1?ssl_cert_reqs=none",
    "rediss://127.0.0.1?ssl_ca_certs=/etc/ca.pem&ssl_check_hostname=false",
    "unix:///run/store.sock?db=2",
    "unix://user:pass@/run/store.sock",
    "sentinel://127.0.0.1:26379,127.0.0.2/names/1?sentinel_username=su&sentinel_password=sp",
    "sentinels://user:pass@127.0.0.1/names?ssl_cert_reqs=none",
]


@pytest.mark.parametrize("address", RIGHT)
def test_an_address_leads_to_the_same_server_as_in_the_service(address: str) -> None:
    expected = StoreUrl.parse(address)
    client: Any = open_client(address)
    try:
        options = client.connection_pool.connection_kwargs
        assert options.get("db", 0) == expected.db
        assert options.get("username") == expected.credentials.username
        assert options.get("password") == expected.credentials.password
        assert options.get("path") == expected.socket_path
        assert options["protocol"] == 2
        assert options["retry"].get_retries() == 0
        if expected.layout.value == "single" and not expected.socket_path:
            assert (options["host"], options["port"]) == tuple(expected.addresses[0])
        if expected.tls:
            assert options["ssl_cert_reqs"] == expected.tls.cert_reqs
            assert options.get("ssl_ca_certs") == expected.tls.ca_certs
            assert options["ssl_check_hostname"] == (
                expected.tls.check_hostname and expected.tls.cert_reqs == "required"
            )
        if expected.layout.value == "sentinel":
            pool = client.connection_pool
            sentinels = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
            assert [(one["host"], one["port"]) for one in sentinels] == [tuple(one) for one in expected.addresses]
            assert {one["password"] for one in sentinels} == {expected.sentinel_credentials.password}
            assert pool.service_name == expected.master
    finally:
        client.close()


def test_the_parser_in_c_is_installed() -> None:
    """It is a requirement of the service; `doctor` warns when it is missing."""
    assert HIREDIS_AVAILABLE


def check_reading_and_writing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_ENV, url)
    writer: Any = open_client(url)
    writer.execute_command("XADD", key_of("far", "changes"), f"{BEGAN_MS}-1", "d", "{}")
    writer.close()
    with StreamReader(URL_ENV, "far") as reader:
        assert reader.newest().id == EntryId(BEGAN_MS, 1)
        assert reader.first() == EntryId(BEGAN_MS, 1)
        assert reader.entries(EntryId(0, 0), EntryId(BEGAN_MS, 1), 10) == [[f"{BEGAN_MS}-1".encode(), [b"d", b"{}"]]]
        reader.write_reader_position("lake", 1)


def test_a_store_behind_sentinels_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with SentinelTrio() as trio:
        check_reading_and_writing(trio.url, monkeypatch)


def test_a_redis_cluster_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with ClusterTrio() as trio:
        check_reading_and_writing(trio.url, monkeypatch)


def test_a_user_with_few_permissions_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedStore(None, port=0) as store:
        assert store.port
        rules = ["on", ">s3cret", "~rb:*", "+xadd", "+xrange", "+xrevrange", "+xinfo|stream", "+hset", "+time"]
        ask(store.port, "ACL", "SETUSER", "reader", *rules)
        check_reading_and_writing(f"redis://reader:s3cret@127.0.0.1:{store.port}", monkeypatch)


def test_an_unreachable_store_is_reported_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in (
        "redis://:hunter2@127.0.0.1:1",
        "cluster://:hunter2@127.0.0.1:1",
        "sentinel://:hunter2@127.0.0.1:1/m",
    ):
        monkeypatch.setenv(URL_ENV, address)
        with StreamReader(URL_ENV, "far") as reader, pytest.raises(UnreachableError, match="RB_UNREACHABLE") as raised:
            reader.newest()
        assert "hunter2" not in str(raised.value)
