"""mqadmin prints the same for Routebook as for Apache's name server.

The same brokers register with both, so both have the same table. Each command is run with each of them.
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
from tests.conformance.name_services import RoutebookFleet, wait_everywhere
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

AGREE_WITHIN = 30.0
"""A broker registers a changed topic with each name server separately."""
CLUSTER = "admin-cluster"


class Both:
    """Apache's name server and ours, with the same brokers."""

    def __init__(self, admin: Admin, apache: str, ours: str, brokers: dict[str, str]) -> None:
        self._admin, self.apache, self.ours, self._brokers = admin, apache, ours, brokers

    def assert_same(self, line: str) -> None:
        """Runs a command with both name servers until its outputs are the same. {ADMIN_A} is replaced by an address."""

        def is_same() -> bool:
            theirs, ours = self._outputs(line)
            return theirs == ours

        try:
            wait_until(is_same, line, timeout_s=AGREE_WITHIN, every_s=0.5)
        except AssertionError:
            theirs, ours = self._outputs(line)
            assert ours == theirs

    def assert_same_once(self, line: str) -> str:
        """The same for a command that changes something and therefore must not be repeated."""
        theirs, ours = self._outputs(line)
        assert ours == theirs
        return ours

    def run(self, line: str) -> tuple[str, str]:
        theirs, ours = (self._output(line, address) for address in (self.apache, self.ours))
        return theirs, ours

    def _outputs(self, line: str) -> tuple[str, str]:
        theirs, ours = self.run(line)
        print(f"--- {line}\n{ours}")
        return _normal(theirs), _normal(ours)

    def _output(self, line: str, address: str) -> str:
        arguments = line.format(**self._brokers).split()
        if arguments[0] == "library":
            return self._admin.run("library", address, *arguments[1:])
        return self._admin.run(arguments[0], "-n", address, *arguments[1:]).replace(address, "NAME-SERVER")


def _normal(output: str) -> str:
    """Without the order of hash maps and without values of brokers that change every second."""
    try:
        return json.dumps(_ordered(json.loads(output)), indent=1, sort_keys=True)
    except ValueError:
        pass
    lines = [_plain(line) for line in output.splitlines()]
    return "\n".join(sorted(line for line in lines if line))


def _plain(line: str) -> str:
    line = re.sub(r"\d+\.\d\d\(\S*?\)(?= )|\d+\.\d{2,4}\b|0-0\(.*?\)", "#", line)
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d+", "TIME", line)
    return re.sub(r"\s+", " ", line).strip()


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _ordered(item) for name, item in value.items()}
    if isinstance(value, list):
        return sorted((_ordered(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


@pytest.fixture(scope="module")
def both(release: Release, admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    libraries = release("5.5.0")
    kinds = {"admin-a": ("5.5.0", 0), "admin-b": ("5.3.3", 0)}
    with ExitStack() as stack:
        apache = stack.enter_context(ApacheNameServer(libraries, folder / "apache", properties=PROPERTIES))
        flags = ("--remoting-admin", "open", "--remoting-config-updates", "true")
        ours = stack.enter_context(RoutebookFleet(folder / "ours", PROPERTIES, flags=flags))
        brokers = {}
        for name, (version, broker_id) in kinds.items():
            names = f"{apache.address};{ours.address}"
            broker = Broker(release(version), folder / name, names, name, broker_id, cluster=CLUSTER)
            stack.enter_context(broker)
            brokers[name.upper().replace("-", "_")] = broker.address
        wait_everywhere(ours, lambda address: len(addresses(address, CLUSTER)) == 2, "both brokers")
        wait_until(lambda: len(addresses(apache.address, CLUSTER)) == 2, "both brokers")
        output = admin.run("updateTopic", "-n", ours.address, "-c", CLUSTER, "-t", "plain", "-r", "4", "-w", "4")
        assert "success" in output
        wait_everywhere(ours, lambda address: len(addresses(address, "plain")) == 2, "the topic")
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
def test_a_reading_command_prints_the_same(command: str, both: Both) -> None:
    both.assert_same(command)


def test_creating_changing_and_deleting_topics_prints_the_same(both: Both) -> None:
    both.assert_same("updateTopic -c admin-cluster -t made -r 6 -w 6")
    both.assert_same("topicRoute -t made")
    both.assert_same("updateTopicPerm -c admin-cluster -t made -p 4")
    both.assert_same("topicRoute -t made")
    both.assert_same("updateTopic -b {ADMIN_A} -t made-at-one -r 2 -w 2 -a +message.type=NORMAL")
    both.assert_same("topicRoute -t made-at-one")
    # The tool deletes the topic at the brokers, which do not report that, and then at its name server.
    both.assert_same_once("deleteTopic -c admin-cluster -t made")
    both.assert_same("topicRoute -t made")
    both.assert_same("topicList")
    for address in (both.apache, both.ours):
        # Without a cluster, as the dashboard does.
        deleted = f"library deleteTopicInNameServer {address} made-at-one"
        both.run(deleted)
    both.assert_same("topicRoute -t made-at-one")
    both.assert_same("topicList -c")


def test_an_ordered_topic_prints_the_same(both: Both) -> None:
    both.assert_same_once("updateTopic -c admin-cluster -t in-order -o true -r 4 -w 4")
    both.assert_same("topicRoute -t in-order")
    both.assert_same("updateOrderConf -t in-order -m get")
    both.assert_same_once("updateOrderConf -t in-order -m put -v admin-a:2")
    both.assert_same("topicRoute -t in-order")
    both.assert_same("library getKVListByNamespace ORDER_TOPIC_CONFIG")
    both.assert_same_once("updateTopic -b {ADMIN_B} -t in-order -o true -r 4 -w 4")
    both.assert_same("updateOrderConf -t in-order -m get")
    both.assert_same_once("updateOrderConf -t in-order -m delete")
    both.assert_same("updateOrderConf -t in-order -m get")
    both.assert_same("topicRoute -t in-order")


def test_a_static_topic_prints_the_same(both: Both) -> None:
    first, second = both.run("updateStaticTopic -t held -qn 4 -c admin-cluster")
    assert "failed" not in first.lower(), first
    # The brokers are the same, so the topic exists at the second run.
    assert "equal the existed queue num" in second, second
    both.assert_same("topicRoute -t held")
    assert "topicQueueMappingByBroker" in both.run("topicRoute -t held")[1]
    both.assert_same("library examineTopicRouteInfo held")


def test_key_values_print_the_same(both: Both) -> None:
    both.assert_same_once("updateKvConfig -s space -k name -v value")
    both.assert_same("library getKVListByNamespace space")
    both.assert_same("library getKVConfig space name")
    both.assert_same_once("deleteKvConfig -s space -k name")
    both.assert_same("library getKVListByNamespace space")
    both.assert_same("library getKVConfig space name")
    both.assert_same_once("deleteKvConfig -s space -k name")


def test_changing_write_permission_prints_the_same(both: Both) -> None:
    assert "OK" in both.assert_same_once("wipeWritePerm -b admin-a")
    both.assert_same("topicRoute -t plain")
    both.assert_same_once("wipeWritePerm -b admin-a")
    both.assert_same_once("wipeWritePerm -b not-there")
    assert "OK" in both.assert_same_once("addWritePerm -b admin-a")
    both.assert_same("topicRoute -t plain")


def test_reading_and_changing_the_configuration_prints_the_same(both: Both) -> None:
    theirs, ours = (_properties(output) for output in both.run("getNamesrvConfig"))
    for name in ("supportActingMaster", "orderMessageEnable", "enableTopicList", "scanNotActiveBrokerInterval"):
        assert ours[name] == theirs[name]
    both.assert_same_once("updateNamesrvConfig -k enableTopicList -v false")
    both.assert_same("topicList")
    both.assert_same("library getTopicListFromNameServer")
    both.assert_same_once("updateNamesrvConfig -k enableTopicList -v true")
    both.assert_same("topicList")


def _properties(output: str) -> dict[str, str]:
    return {match[1]: match[2] for match in re.finditer(r"^(\w+)\s*=\s*(.*?)\s*$", output, re.MULTILINE)}
