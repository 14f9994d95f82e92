"""docs/migration.md with real processes: a fleet moves from Apache's name server to Routebook, and back."""

import json
import time
from pathlib import Path

import pytest

from routebook.client.name_server import NameServer
from routebook.client.remoting_client import RemotingClient
from tests.conformance.conftest import Release
from tests.conformance.java_processes import ApacheNameServer, Broker, mqadmin
from tests.runtime.running import Running, run
from tests.support.waiting import until, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

APPLIED_SECONDS = 60.0
"""For a changed list of name servers: read every five seconds here, then a registration period of 30 s."""
SENT_SECONDS = 60.0
BACK_SECONDS = 40.0
"""A registration period of 30 s; the rest is for this machine."""


class Migration:
    """Two name services, a broker, and the commands of the page."""

    def __init__(self, libraries: Path, folder: Path, store_url: str, namespace: str) -> None:
        self.libraries, self.folder = libraries, folder
        self.old = ApacheNameServer(libraries, folder / "old")
        properties = {"updateNameServerAddrPeriod": 5000}
        self.broker = Broker(libraries, folder / "broker", self.old.address, properties=properties)
        configuration = ("-c", str(folder / "old" / "namesrv.conf"))
        words = ("serve", "--redis-url", store_url, "--namespace", namespace, "--bind-address", "127.0.0.1")
        self.service = Running(*words, *configuration, folder=folder)

    def routebook(self, *words: str) -> tuple[int, str]:
        ended = run(*words, "--url", self.service.http.replace("0.0.0.0", "127.0.0.1"), cwd=self.folder)
        return ended.returncode, ended.stdout + ended.stderr

    def admin(self, command: str, *words: str) -> str:
        return mqadmin(self.libraries, self.folder / "tool", command, *words)

    def sends(self, name_server: str) -> None:
        """Whether a producer that knows this address alone gets a message through. The tool gives up after three
        seconds, which a busy machine may need to start its client.
        """
        words = ("-n", name_server, "-t", "TopicM", "-p", "message")

        def is_sent() -> bool:
            said = self.admin("sendMessage", *words)
            if "SEND_OK" not in said:
                print(f"not sent through {name_server}: {said}")
            return "SEND_OK" in said

        wait_until(is_sent, "a message is sent", timeout_s=SENT_SECONDS)

    def compare(self) -> int:
        return self.routebook("compare", self.old.address, "--settle", "0")[0]

    def name_servers_of_broker(self, *addresses: str, ask: str) -> None:
        listed = ";".join(addresses)
        words = ("-n", ask, "-b", self.broker.address, "-k", "namesrvAddr", "-v", listed)
        assert "success" in self.admin("updateBrokerConfig", *words)


@pytest.fixture
def migration(release: Release, tmp_path: Path, store_url: str, namespace_name: str) -> Migration:
    return Migration(release("5.5.0"), tmp_path, store_url, namespace_name)


async def test_a_fleet_moves_and_comes_back(migration: Migration, tmp_path: Path) -> None:
    old = migration.old
    with old, migration.broker as broker:
        wait_until(lambda: broker.address in migration.admin("clusterList", "-n", old.address), "the broker registers")
        order = ("-m", "put", "-t", "TopicO", "-v", "broker-a:4")
        assert "success" in migration.admin("updateOrderConf", "-n", old.address, *order)
        await register_topic_alone(old.address)

        with migration.service:  # 1
            new = migration.service.remoting
            assert f"address {new}" in migration.service.said

            code, said = migration.routebook("compare", old.address)  # 2
            assert code == 1
            assert f"only {old.address}" in said
            assert "key-value" not in said, "these came with Apache's file"

            migration.name_servers_of_broker(old.address, new, ask=old.address)  # 3
            named = ("kv", "get", "ORDER_TOPIC_CONFIG", "TopicO")
            assert migration.routebook(*named) == (0, "broker-a:4\n")
            wait_until(
                lambda: "broker-a" in migration.routebook("brokers")[1],
                "the broker registers with both",
                timeout_s=APPLIED_SECONDS,
            )
            code, said = migration.routebook("compare", old.address)
            assert code == 1
            assert [line.split()[:2] for line in said.splitlines()[1:-1]] == [["topic", "AtNameServer"]]

            assert migration.routebook("snapshot", "export", "--from", old.address, "fleet.json")[0] == 0  # 4
            code, dry = migration.routebook("snapshot", "import", "fleet.json", "--dry-run")
            code, said = migration.routebook("snapshot", "import", "fleet.json")
            assert (code, dry.replace("Would write", "Written")) == (0, said)
            assert "0 brokers, 1 topics" in said
            code, said = migration.routebook("compare", old.address)
            assert code == 0, said
            assert said.startswith("Equal: 1 clusters, 1 broker groups, ")

            migration.admin("updateTopic", "-n", new, "-b", broker.address, "-t", "TopicM")  # 5
            wait_until(lambda: migration.compare() == 0, "both have the new topic")
            migration.sends(new)

            old.stop()  # 6
            assert await has_routes(new, {"TBW102", "TopicM", "broker-a"})
            migration.sends(new)
            code, said = migration.routebook("compare", old.address)
            assert (code, old.address in said) == (3, True)
            assert migration.routebook("kv", "put", "ORDER_TOPIC_CONFIG", "TopicN", "broker-a:2")[0] == 0

            assert migration.routebook("snapshot", "export", "fleet.json")[0] == 0  # back
            key_values = json.loads((tmp_path / "fleet.json").read_text())["key_values"]
            (tmp_path / "old" / "kvConfig.json").write_text(json.dumps({"configTable": key_values}))
            old.start()
            seconds = await seconds_to_full_routes(old.address, {"TBW102", "TopicM", "broker-a"})
            print(f"Apache's name server has all routes again after {seconds:.1f} s")
            code, said = migration.routebook("compare", old.address)
            assert [line.split()[:2] for line in said.splitlines()[1:-1]] == [["topic", "AtNameServer"]], said
            migration.service.stop()
        migration.sends(old.address)


async def has_routes(address: str, topics: set[str]) -> bool:
    async with await NameServer.connect(address) as server:
        return all([await server.route(topic) for topic in topics])


async def seconds_to_full_routes(address: str, topics: set[str]) -> float:
    """From the moment it is ready. A broker brings all its topics at once."""
    started = time.monotonic()
    await until(lambda: has_routes(address, topics), timeout_s=BACK_SECONDS, every_s=0.1)
    return round(time.monotonic() - started, 1)


async def register_topic_alone(address: str) -> None:
    """217: a topic that no broker knows of."""
    queue = '{"brokerName":"broker-a","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}'
    async with await RemotingClient.connect(address) as client:
        answer = await client.ask(217, ext={"topic": "AtNameServer"}, body=f'{{"queueDatas":[{queue}]}}'.encode())
    assert answer.code == 0
