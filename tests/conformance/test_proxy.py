"""RocketMQ's proxy in cluster mode: clients use the proxy, and the proxy uses the name service."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conftest import Release
from tests.conformance.frames import addresses
from tests.conformance.java_processes import HOST, JavaProcess
from tests.conformance.java_programs import Admin, Grpc, Messages
from tests.conformance.name_services import NameService, wait_everywhere
from tests.support.ports import lasting_free_port

pytestmark = [pytest.mark.slow, pytest.mark.conformance, pytest.mark.usefixtures("brokers")]


class Proxy(JavaProcess):
    """`mqproxy -pm cluster`."""

    main = "org.apache.rocketmq.proxy.ProxyStartup"
    heap_mb = 512

    def __init__(self, classpath: Path, folder: Path, name_server: str) -> None:
        super().__init__(classpath, folder, env={"RMQ_PROXY_HOME": str(folder)})
        self.grpc, self.remoting = f"{HOST}:{lasting_free_port()}", f"{HOST}:{lasting_free_port()}"
        configuration = {
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": name_server,
            "grpcServerPort": int(self.grpc.rpartition(":")[2]),
            "remotingListenPort": int(self.remoting.rpartition(":")[2]),
            "localServeAddr": HOST,
        }
        self._configuration = folder / "proxy.json"
        self._configuration.write_text(json.dumps(configuration))

    def arguments(self) -> list[str]:
        return ["-pc", str(self._configuration), "-pm", "cluster"]

    def options(self) -> list[str]:
        return ["-XX:MaxDirectMemorySize=512m"]

    def is_ready(self) -> bool:
        return "startup successfully" in self.log


@pytest.fixture(scope="module")
def proxy(release: Release, name_service: NameService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with Proxy(release("5.5.0", "proxy"), tmp_path_factory.mktemp("proxy"), name_service.address) as proxy:
        yield proxy


def _create_topic(admin: Admin, name_service: NameService, topic: str) -> None:
    output = admin.run("updateTopic", "-n", name_service.address, "-c", "DefaultCluster", "-t", topic)
    assert "success" in output, output
    wait_everywhere(name_service, lambda address: len(addresses(address, topic)) == 2, topic)


def test_a_grpc_client_sends_and_receives(
    release: Release, name_service: NameService, admin: Admin, proxy: Proxy, tmp_path: Path
) -> None:
    _create_topic(admin, name_service, "by-grpc")
    with Grpc(release("5.0.8", "client-java"), tmp_path, proxy.grpc) as peer:
        assert peer.ask("subscribe grpc-group by-grpc") == "subscribed"
        assert peer.ask("send by-grpc 0 100") == "sent"
        assert peer.ask("await grpc-group 100") == "got 100"
        missing = peer.ask("send not-there 0 1")
        assert "NotFoundException" in missing
        assert "No topic route info in name server for the topic: not-there" in missing
    looked_up = {frame.ext["topic"] for frame in name_service.log.requests(105)}
    assert {"by-grpc", "not-there", "DefaultCluster"} <= looked_up


def test_a_remoting_client_sends_and_receives(
    release: Release, name_service: NameService, admin: Admin, proxy: Proxy, tmp_path: Path
) -> None:
    _create_topic(admin, name_service, "by-proxy")
    with Messages(release("5.5.0"), tmp_path, proxy.remoting) as peer:
        peer.assert_exchange("by-proxy", 100)
