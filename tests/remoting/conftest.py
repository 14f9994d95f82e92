"""Each test has a port of its own, and a peer connected to it."""

from collections.abc import AsyncIterator

import pytest

from tests.remoting.port import PortUnderTest, remoting_port
from tests.support.peers import Peer


@pytest.fixture
async def port(store_url: str, namespace_name: str) -> AsyncIterator[PortUnderTest]:
    async with remoting_port(store_url, namespace_name) as port:
        yield port


@pytest.fixture
async def peer(port: PortUnderTest) -> AsyncIterator[Peer]:
    async with await Peer.connect(port.address) as peer:
        yield peer
