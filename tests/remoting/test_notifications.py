"""Request 905 on the wire, and receivers that cannot be reached."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from routebook.listeners.tls import ClientRule, make_test_pair, server_context
from routebook.model.broker import MinBrokerChange
from routebook.remoting.notifications import Notifications
from routebook.remoting_client import RemotingClient
from routebook.settings.live import LiveSettings
from routebook.settings.loading import load
from tests.remoting.port import BROKER_A, register, remoting_port
from tests.support.broker_hosts import BrokerHosts
from tests.support.peers import Peer, server_playing, split_json_frame
from tests.support.waiting import until


@dataclass
class Broker:
    """A listener that records the headers it receives."""

    received: list[dict[str, Any]] = field(default_factory=list)

    async def play(self, caller: Peer) -> None:
        while True:
            try:
                header, _ = split_json_frame(await caller.frame(timeout_s=None))
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return
            self.received.append(header)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        async with server_playing(self.play) as address:
            yield address


async def test_members_of_a_group_are_notified_of_their_smallest_id(store_url: str, namespace_name: str) -> None:
    slave = Broker()
    async with (
        slave.listening() as there,
        remoting_port(store_url, namespace_name, notify_min_broker_id_changed=True) as port,
        await Peer.connect(port.address) as peer,
    ):
        await register(peer, brokerId="1", brokerAddr=there, enableActingMaster="true")
        await register(peer, enableActingMaster="true")
        await until(lambda: slave.received)
        await peer.ask(104, {name: BROKER_A[name] for name in ("clusterName", "brokerName", "brokerAddr", "brokerId")})
        await until(lambda: len(slave.received) == 2)
        joined, left = slave.received
        assert (joined["code"], joined["flag"], left["code"], left["flag"]) == (905, 2, 905, 2)
        assert joined["extFields"] == {
            "minBrokerId": "0",
            "minBrokerAddr": BROKER_A["brokerAddr"],
            "haBrokerAddr": BROKER_A["haServerAddr"],
        }
        assert left["extFields"] == {
            "minBrokerId": "1",
            "minBrokerAddr": there,
            "offlineBrokerAddr": BROKER_A["brokerAddr"],
        }


def change(*receivers: str, min_id: int = 0) -> MinBrokerChange:
    return MinBrokerChange("broker-a", min_id, "127.0.0.1:10911", receivers, ha_address="127.0.0.1:10912")


async def test_a_receiver_that_cannot_be_reached_is_left_out() -> None:
    broker = Broker()
    notifications = Notifications(settings(connect_timeout_ms=100))
    with BrokerHosts() as hosts:
        async with broker.listening() as there:
            notifications.notify(change(hosts.refusing(), hosts.silent(), "nonsense", there))
            await until(lambda: len(broker.received) == 1)
            await notifications.close()


async def test_brokers_that_require_tls_are_notified_by_tls() -> None:
    broker, certificate = Broker(), server_context(make_test_pair(), ClientRule(), None)
    notifications = Notifications(settings(tls_client_enable=True))
    async with server_playing(broker.play, certificate) as there:
        notifications.notify(change(there))
        await until(lambda: broker.received)
        await notifications.close()


async def test_a_receiver_is_notified_of_changes_in_their_order() -> None:
    broker = Broker()
    notifications = Notifications(settings())
    async with broker.listening() as there:
        for min_id in range(10):
            notifications.notify(change(there, min_id=min_id))
        await until(lambda: len(broker.received) == 10)
        assert [header["extFields"]["minBrokerId"] for header in broker.received] == [str(n) for n in range(10)]
        await notifications.close()


async def test_a_change_during_the_close_of_a_connection_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    closing, may_close, really_close = asyncio.Event(), asyncio.Event(), RemotingClient.close

    async def close(client: RemotingClient) -> None:
        closing.set()
        await may_close.wait()
        await really_close(client)

    monkeypatch.setattr(RemotingClient, "close", close)
    broker = Broker()
    notifications = Notifications(settings())
    async with broker.listening() as there:
        notifications.notify(change(there, min_id=1))
        await closing.wait()
        notifications.notify(change(there, min_id=2))
        may_close.set()
        await until(lambda: [header["extFields"]["minBrokerId"] for header in broker.received] == ["1", "2"])
        await notifications.close()


async def test_a_connection_is_closed_after_the_last_notification() -> None:
    ended = asyncio.Event()

    async def play(caller: Peer) -> None:
        await caller.frame()
        assert await caller.read_to_end() == b""
        ended.set()

    notifications = Notifications(settings())
    async with server_playing(play) as there:
        notifications.notify(change(there))
        await asyncio.wait_for(ended.wait(), 30)
        await notifications.close()


def settings(**changed: int) -> LiveSettings:
    return LiveSettings(load({name: str(value) for name, value in changed.items()}))
