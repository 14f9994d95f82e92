"""The same addresses as the service's, to the same servers."""

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
def test_what_the_service_refuses_is_refused_here(address: str) -> None:
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
def test_what_the_service_takes_leads_to_the_same_place(address: str) -> None:
    meant = StoreUrl.parse(address)
    client: Any = open_client(address)
    try:
        found = client.connection_pool.connection_kwargs
        assert found.get("db", 0) == meant.db
        assert found.get("username") == meant.credentials.username
        assert found.get("password") == meant.credentials.password
        assert found.get("path") == meant.socket_path
        assert found["protocol"] == 2
        assert found["retry"].get_retries() == 0
        if meant.layout.value == "single" and not meant.socket_path:
            assert (found["host"], found["port"]) == tuple(meant.addresses[0])
        if meant.tls:
            assert found["ssl_cert_reqs"] == meant.tls.cert_reqs
            assert found.get("ssl_ca_certs") == meant.tls.ca_certs
            assert found["ssl_check_hostname"] == (meant.tls.check_hostname and meant.tls.cert_reqs == "required")
        if meant.layout.value == "sentinel":
            pool = client.connection_pool
            asked = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
            assert [(one["host"], one["port"]) for one in asked] == [tuple(one) for one in meant.addresses]
            assert {one["password"] for one in asked} == {meant.sentinel_credentials.password}
            assert pool.service_name == meant.master
    finally:
        client.close()


def test_the_c_parser_is_here() -> None:
    """It comes with the service's own requirements; `doctor` says when it is missing."""
    assert HIREDIS_AVAILABLE


def reads_and_writes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_ENV, url)
    writer: Any = open_client(url)
    writer.execute_command("XADD", key_of("far", "changes"), f"{BEGAN_MS}-1", "d", "{}")
    writer.close()
    with StreamReader(URL_ENV, "far") as reader:
        assert reader.newest().id == EntryId(BEGAN_MS, 1)
        assert reader.first() == EntryId(BEGAN_MS, 1)
        assert reader.entries(EntryId(0, 0), EntryId(BEGAN_MS, 1), 10) == [[f"{BEGAN_MS}-1".encode(), [b"d", b"{}"]]]
        reader.write_reader_position("lake", 1)


def test_through_sentinels(monkeypatch: pytest.MonkeyPatch) -> None:
    with SentinelTrio() as trio:
        reads_and_writes(trio.url, monkeypatch)


def test_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    with ClusterTrio() as trio:
        reads_and_writes(trio.url, monkeypatch)


def test_as_a_user_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedStore(None, port=0) as store:
        assert store.port
        rules = ["on", ">s3cret", "~rb:*", "+xadd", "+xrange", "+xrevrange", "+xinfo|stream", "+hset", "+time"]
        ask(store.port, "ACL", "SETUSER", "reader", *rules)
        reads_and_writes(f"redis://reader:s3cret@127.0.0.1:{store.port}", monkeypatch)


def test_a_store_that_is_not_there_is_said_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in (
        "redis://:hunter2@127.0.0.1:1",
        "cluster://:hunter2@127.0.0.1:1",
        "sentinel://:hunter2@127.0.0.1:1/m",
    ):
        monkeypatch.setenv(URL_ENV, address)
        with StreamReader(URL_ENV, "far") as reader, pytest.raises(UnreachableError, match="RB_UNREACHABLE") as raised:
            reader.newest()
        assert "hunter2" not in str(raised.value)
