"""What mqadmin prints of Routebook is what it prints of Apache's name server.

The same brokers are registered with both, so both hold the same; each command is run once for either.
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conformance.conftest import PROPERTIES, Release
from tests.conformance.frames import addresses
from tests.conformance.java_processes import ApacheNameServer, Broker
from tests.conformance.java_programs import Admin
from tests.conformance.name_services import RoutebookFleet, everywhere
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

AGREE_WITHIN = 30.0
"""A changed topic reaches each name server with a registration of its own."""
CLUSTER = "admin-cluster"


class Both:
    """Apache's and ours, with the same brokers."""

    def __init__(self, admin: Admin, apache: str, ours: str, brokers: dict[str, str]) -> None:
        self._admin, self.apache, self.ours, self._brokers = admin, apache, ours, brokers

    def run(self, line: str) -> None:
        """One command, {BROKER_A} and the like filled in; each name server's own output is the same."""

        def agree() -> bool:
            said = self._of_each(line)
            return said[0] == said[1]

        try:
            wait_until(agree, line, timeout_s=AGREE_WITHIN, every_s=0.5)
        except AssertionError:
            apaches, our = self._of_each(line)
            assert our == apaches

    def once(self, line: str) -> str:
        """For commands that change something: not repeated until they agree."""
        apaches, our = self._of_each(line)
        assert our == apaches
        return our

    def raw(self, line: str) -> tuple[str, str]:
        apaches, our = (self._said(line, address) for address in (self.apache, self.ours))
        return apaches, our

    def _of_each(self, line: str) -> tuple[str, str]:
        apaches, our = self.raw(line)
        print(f"--- {line}\n{our}")
        return _normal(apaches), _normal(our)

    def _said(self, line: str, address: str) -> str:
        words = line.format(**self._brokers).split()
        if words[0] == "library":
            return self._admin.run("library", address, *words[1:])
        return self._admin.run(words[0], "-n", address, *words[1:]).replace(address, "NAME-SERVER")


def _normal(said: str) -> str:
    """Without the order of hash maps, and what brokers answer differently from second to second."""
    try:
        return json.dumps(_ordered(json.loads(said)), indent=1, sort_keys=True)
    except ValueError:
        pass
    lines = [_plain(line) for line in said.splitlines()]
    return "\n".join(sorted(line for line in lines if line))


def _plain(line: str) -> str:
    line = re.sub(r"\d+\.\d\d\(\S*?\)(?= )|\d+\.\d{2,4}\b|0-0\(.*?\)", "#", line)
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d+", "TIME", line)
    return re.sub(r"\s+", " ", line).strip()


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _ordered(one) for name, one in value.items()}
    if isinstance(value, list):
        return sorted((_ordered(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
    return value


@pytest.fixture(scope="module")
def both(release: Release, admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    libraries = release("5.5.0")
    kinds = {"admin-a": ("5.5.0", 0), "admin-b": ("5.3.3", 0)}
    with ExitStack() as stack:
        apache = stack.enter_context(ApacheNameServer(libraries, folder / "apache", properties=PROPERTIES))
        flags = ("--remoting-config-updates", "true")
        ours = stack.enter_context(RoutebookFleet(folder / "ours", PROPERTIES, flags=flags))
        brokers = {}
        for name, (version, broker_id) in kinds.items():
            names = f"{apache.address};{ours.address}"
            broker = Broker(release(version), folder / name, names, name, broker_id, cluster=CLUSTER)
            stack.enter_context(broker)
            brokers[name.upper().replace("-", "_")] = broker.address
        everywhere(ours, lambda address: len(addresses(address, CLUSTER)) == 2, "both brokers")
        wait_until(lambda: len(addresses(apache.address, CLUSTER)) == 2, "both brokers")
        said = admin.run("updateTopic", "-n", ours.address, "-c", CLUSTER, "-t", "plain", "-r", "4", "-w", "4")
        assert "success" in said
        everywhere(ours, lambda address: len(addresses(address, "plain")) == 2, "the topic")
        wait_until(lambda: len(addresses(apache.address, "plain")) == 2, "the topic")
        yield Both(admin, apache.address, ours.address, brokers)


@pytest.mark.parametrize(
    "command",
    [
        "clusterList",
        "clusterList -c admin-cluster",
        "clusterList -m",
        "topicList",
        "topicList -c",
        "topicRoute -t plain",
        "topicRoute -t plain -l",
        "topicRoute -t not-there",
        "topicRoute -t admin-cluster",
        "topicRoute -t TBW102",
        "topicStatus -t plain",
        "topicClusterList -t plain",
        "topicClusterList -t not-there",
        "statsAll",
        "consumerProgress",
        "allocateMQ -t plain -i 10.0.0.1,10.0.0.2",
        "getBrokerConfig -c admin-cluster-not-there",
        "brokerStatus -c not-there",
        "updateOrderConf -t not-there -m get",
        "library fetchAllTopicList",
        "library examineBrokerClusterInfo",
        "library examineTopicRouteInfo plain",
        "library fetchTopicsByCLuster admin-cluster",
        "library fetchTopicsByCLuster not-there",
        "library getTopicListFromNameServer",
        "library getSystemTopicList",
        "library getUnitTopicList false",
        "library getHasUnitSubTopicList false",
        "library getHasUnitSubUnUnitTopicList false",
        "library getKVListByNamespace ORDER_TOPIC_CONFIG",
    ],
)
def test_a_command_that_reads(command: str, both: Both) -> None:
    both.run(command)


def test_topics_are_made_changed_and_deleted(both: Both) -> None:
    both.run("updateTopic -c admin-cluster -t made -r 6 -w 6")
    both.run("topicRoute -t made")
    both.run("updateTopicPerm -c admin-cluster -t made -p 4")
    both.run("topicRoute -t made")
    both.run("updateTopic -b {ADMIN_A} -t made-at-one -r 2 -w 2 -a +message.type=NORMAL")
    both.run("topicRoute -t made-at-one")
    # The tool deletes at the brokers, which do not tell; then at the name server it was given.
    both.once("deleteTopic -c admin-cluster -t made")
    both.run("topicRoute -t made")
    both.run("topicList")
    for address in (both.apache, both.ours):
        # As the dashboard does: without a cluster.
        deleted = f"library deleteTopicInNameServer {address} made-at-one"
        both.raw(deleted)
    both.run("topicRoute -t made-at-one")
    both.run("topicList -c")


def test_an_ordered_topic(both: Both) -> None:
    both.once("updateTopic -c admin-cluster -t in-order -o true -r 4 -w 4")
    both.run("topicRoute -t in-order")
    both.run("updateOrderConf -t in-order -m get")
    both.once("updateOrderConf -t in-order -m put -v admin-a:2")
    both.run("topicRoute -t in-order")
    both.run("library getKVListByNamespace ORDER_TOPIC_CONFIG")
    both.once("updateTopic -b {ADMIN_B} -t in-order -o true -r 4 -w 4")
    both.run("updateOrderConf -t in-order -m get")
    both.once("updateOrderConf -t in-order -m delete")
    both.run("updateOrderConf -t in-order -m get")
    both.run("topicRoute -t in-order")


def test_a_static_topic(both: Both) -> None:
    first, second = both.raw("updateStaticTopic -t held -qn 4 -c admin-cluster")
    assert "failed" not in first.lower(), first
    # The same brokers: what the first made, the second finds.
    assert "equal the existed queue num" in second, second
    both.run("topicRoute -t held")
    assert "topicQueueMappingByBroker" in both.raw("topicRoute -t held")[1]
    both.run("library examineTopicRouteInfo held")


def test_key_values(both: Both) -> None:
    both.once("updateKvConfig -s space -k name -v value")
    both.run("library getKVListByNamespace space")
    both.run("library getKVConfig space name")
    both.once("deleteKvConfig -s space -k name")
    both.run("library getKVListByNamespace space")
    both.run("library getKVConfig space name")
    both.once("deleteKvConfig -s space -k name")


def test_write_permission_is_wiped_and_added(both: Both) -> None:
    assert "OK" in both.once("wipeWritePerm -b admin-a")
    both.run("topicRoute -t plain")
    both.once("wipeWritePerm -b admin-a")
    both.once("wipeWritePerm -b not-there")
    assert "OK" in both.once("addWritePerm -b admin-a")
    both.run("topicRoute -t plain")


def test_the_configuration_reads_and_changes(both: Both) -> None:
    apaches, our = (_properties(said) for said in both.raw("getNamesrvConfig"))
    for name in ("supportActingMaster", "orderMessageEnable", "enableTopicList", "scanNotActiveBrokerInterval"):
        assert our[name] == apaches[name]
    both.once("updateNamesrvConfig -k enableTopicList -v false")
    both.run("topicList")
    both.run("library getTopicListFromNameServer")
    both.once("updateNamesrvConfig -k enableTopicList -v true")
    both.run("topicList")


def _properties(said: str) -> dict[str, str]:
    return {match[1]: match[2] for match in re.finditer(r"^(\w+)\s*=\s*(.*?)\s*$", said, re.MULTILINE)}
