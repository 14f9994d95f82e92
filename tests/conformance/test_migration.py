"""The steps of docs/migration.md with real processes: from Apache's name server to Routebook, and back."""

import json
import time
from pathlib import Path

import pytest

from routebook.remoting_client import NameServer, RemotingClient
from tests.conformance.conftest import Release
from tests.conformance.java_processes import ApacheNameServer, Broker, mqadmin
from tests.runtime.running import Running, run
from tests.support.figures import Figures
from tests.support.waiting import until, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

APPLIED_SECONDS = 60.0
"""A broker reads a changed list of name servers every five seconds here, and registers every 30 s."""
SENT_SECONDS = 60.0
BACK_SECONDS = 30.0
"""A registration period."""


class Migration:
    """Both name services, a broker, and the commands of docs/migration.md."""

    def __init__(self, libraries: Path, folder: Path, store_url: str, namespace: str) -> None:
        self.libraries, self.folder = libraries, folder
        self.old = ApacheNameServer(libraries, folder / "old")
        properties = {"updateNameServerAddrPeriod": 5000}
        self.broker = Broker(libraries, folder / "broker", self.old.address, properties=properties)
        configuration = ("-c", str(folder / "old" / "namesrv.conf"))
        arguments = ("serve", "--redis-url", store_url, "--namespace", namespace, "--bind-address", "127.0.0.1")
        self.service = Running(*arguments, *configuration, folder=folder)

    def routebook(self, *arguments: str) -> tuple[int, str]:
        ended = run(*arguments, "--url", self.service.http.replace("0.0.0.0", "127.0.0.1"), cwd=self.folder)
        return ended.returncode, ended.stdout + ended.stderr

    def admin(self, command: str, *arguments: str) -> str:
        return mqadmin(self.libraries, self.folder / "tool", command, *arguments)

    def assert_can_send(self, name_server: str) -> None:
        """Sends a message with this name server alone. The tool gives up after three seconds, in which a busy
        machine may not even start its client, so it is repeated.
        """
        arguments = ("-n", name_server, "-t", "TopicM", "-p", "message")

        def is_sent() -> bool:
            output = self.admin("sendMessage", *arguments)
            if "SEND_OK" not in output:
                print(f"not sent with {name_server}: {output}")
            return "SEND_OK" in output

        wait_until(is_sent, "a message is sent", timeout_s=SENT_SECONDS)

    def compare(self) -> int:
        return self.routebook("compare", self.old.address, "--settle", "0")[0]

    def set_name_servers_of_broker(self, *addresses: str, ask: str) -> None:
        arguments = ("-n", ask, "-b", self.broker.address, "-k", "namesrvAddr", "-v", ";".join(addresses))
        assert "success" in self.admin("updateBrokerConfig", *arguments)


@pytest.fixture
def migration(release: Release, tmp_path: Path, store_url: str, namespace_name: str) -> Migration:
    return Migration(release("5.5.0"), tmp_path, store_url, namespace_name)


async def test_a_fleet_moves_to_routebook_and_back(migration: Migration, tmp_path: Path, figure: Figures) -> None:
    old = migration.old
    with old, migration.broker as broker:
        wait_until(lambda: broker.address in migration.admin("clusterList", "-n", old.address), "the broker registers")
        order = ("-m", "put", "-t", "TopicO", "-v", "broker-a:4")
        assert "success" in migration.admin("updateOrderConf", "-n", old.address, *order)
        await register_topic_at_name_server(old.address)

        with migration.service:  # 1
            new = migration.service.remoting
            assert f"address {new}" in migration.service.output

            code, output = migration.routebook("compare", old.address)  # 2
            assert code == 1
            assert f"only {old.address}" in output
            assert "key-value" not in output, "Routebook has read the key-values from Apache's file"

            migration.set_name_servers_of_broker(old.address, new, ask=old.address)  # 3
            assert migration.routebook("kv", "get", "ORDER_TOPIC_CONFIG", "TopicO") == (0, "broker-a:4\n")
            wait_until(
                lambda: "broker-a" in migration.routebook("brokers")[1],
                "the broker registers with both",
                timeout_s=APPLIED_SECONDS,
            )
            code, output = migration.routebook("compare", old.address)
            assert code == 1
            assert [line.split()[:2] for line in output.splitlines()[1:-1]] == [["topic", "AtNameServer"]]

            assert migration.routebook("snapshot", "export", "--from", old.address, "fleet.json")[0] == 0  # 4
            code, dry = migration.routebook("snapshot", "import", "fleet.json", "--dry-run")
            code, output = migration.routebook("snapshot", "import", "fleet.json")
            assert (code, dry.replace("Would write", "Written")) == (0, output)
            assert "0 brokers, 1 topics" in output
            code, output = migration.routebook("compare", old.address)
            assert code == 0, output
            assert output.startswith("Equal: 1 clusters, 1 broker groups, ")

            migration.admin("updateTopic", "-n", new, "-b", broker.address, "-t", "TopicM")  # 5
            wait_until(lambda: migration.compare() == 0, "both have the new topic")
            migration.assert_can_send(new)

            old.stop()  # 6
            assert await has_routes(new, {"TBW102", "TopicM", "broker-a"})
            migration.assert_can_send(new)
            code, output = migration.routebook("compare", old.address)
            assert (code, old.address in output) == (3, True)
            assert migration.routebook("kv", "put", "ORDER_TOPIC_CONFIG", "TopicN", "broker-a:2")[0] == 0

            assert migration.routebook("snapshot", "export", "fleet.json")[0] == 0  # back
            key_values = json.loads((tmp_path / "fleet.json").read_text())["key_values"]
            (tmp_path / "old" / "kvConfig.json").write_text(json.dumps({"configTable": key_values}))
            old.start()
            seconds = await seconds_to_full_routes(old.address, {"TBW102", "TopicM", "broker-a"})
            figure("Apache's name server has all routes again after", seconds, "s", at_most=BACK_SECONDS)
            code, output = migration.routebook("compare", old.address)
            assert [line.split()[:2] for line in output.splitlines()[1:-1]] == [["topic", "AtNameServer"]], output
            migration.service.stop()
        migration.assert_can_send(old.address)


async def has_routes(address: str, topics: set[str]) -> bool:
    async with await NameServer.connect(address) as server:
        return all([await server.route(topic) for topic in topics])


async def seconds_to_full_routes(address: str, topics: set[str]) -> float:
    """The time from its start until it has these routes. A broker registers all its topics at once."""
    started = time.monotonic()
    await until(lambda: has_routes(address, topics), timeout_s=2 * BACK_SECONDS, every_s=0.1)
    return round(time.monotonic() - started, 1)


async def register_topic_at_name_server(address: str) -> None:
    """Registers a topic with request 217, which no broker has."""
    queue = '{"brokerName":"broker-a","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}'
    async with await RemotingClient.connect(address) as client:
        answer = await client.request(217, ext={"topic": "AtNameServer"}, body=f'{{"queueDatas":[{queue}]}}'.encode())
    assert answer.code == 0
