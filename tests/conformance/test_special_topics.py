"""Ordered topics, static topics, and consumer groups in pop mode."""

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import Release
from tests.conformance.frames import route
from tests.conformance.java_processes import Broker
from tests.conformance.java_programs import Admin, Messages
from tests.conformance.name_services import NameService, wait_everywhere

pytestmark = [pytest.mark.slow, pytest.mark.conformance, pytest.mark.usefixtures("brokers")]


def test_an_ordered_topic_has_the_queues_of_its_order(
    release: Release, name_service: NameService, admin: Admin, tmp_path: Path
) -> None:
    server = ("-n", name_service.address)
    output = admin.run(
        "updateTopic", *server, "-c", "DefaultCluster", "-t", "ordered", "-o", "true", "-r", "8", "-w", "8"
    )
    assert "set cluster orderConf" in output, output
    wait_everywhere(
        name_service, lambda address: sorted(_order(address).split(";")) == ["broker-a:8", "broker-b:8"], "the order"
    )
    put = ("updateOrderConf", *server, "-t", "ordered", "-m", "put", "-v", "broker-a:3")
    assert "success" in admin.run(*put)
    wait_everywhere(name_service, lambda address: _order(address) == "broker-a:3", "the new order")
    with Messages(release("5.5.0"), tmp_path, name_service.address) as peer:
        assert peer.ask("queues ordered") == "broker-a:0,broker-a:1,broker-a:2"
        peer.assert_exchange("ordered", 20)
    assert "broker-a:3" in admin.run("updateOrderConf", *server, "-t", "ordered", "-m", "get")
    assert "success" in admin.run("updateOrderConf", *server, "-t", "ordered", "-m", "delete")
    wait_everywhere(name_service, lambda address: not _order(address), "no order")


def _order(address: str) -> str:
    return (route(address, "ordered") or {}).get("orderTopicConf") or ""


def test_a_static_topic_keeps_its_logical_queues(
    release: Release, name_service: NameService, admin: Admin, tmp_path: Path
) -> None:
    server = ("-n", name_service.address)
    output = admin.run("updateStaticTopic", *server, "-t", "static", "-qn", "6", "-c", "DefaultCluster")
    assert "failed" not in output.lower(), output
    wait_everywhere(name_service, lambda address: sorted(_mapped(address)) == ["broker-a", "broker-b"], "the mapping")
    for address in name_service.each:
        mapped = [queue for info in _mapped(address).values() for queue in info["currIdMap"]]
        assert sorted(mapped) == ["0", "1", "2", "3", "4", "5"]
    with Messages(release("5.5.0"), tmp_path, name_service.address) as peer:
        queues = peer.ask("queues static").split(",")
        assert {queue.rpartition(":")[2] for queue in queues} == {"0", "1", "2", "3", "4", "5"}
        assert {queue.rpartition(":")[0] for queue in queues} == {"__syslo__global__"}
        peer.assert_exchange("static", 60)


def _mapped(address: str) -> dict[str, Any]:
    return (route(address, "static") or {}).get("topicQueueMappingByBroker") or {}


def test_a_consumer_group_in_pop_mode_gets_every_message(
    release: Release, name_service: NameService, brokers: tuple[Broker, Broker], admin: Admin, tmp_path: Path
) -> None:
    server = ("-n", name_service.address)
    output = admin.run("updateTopic", *server, "-c", "DefaultCluster", "-t", "popped", "-r", "4", "-w", "4")
    assert "success" in output, output
    for broker in brokers:
        mode = (
            "setConsumeMode",
            *server,
            "-b",
            broker.address,
            "-t",
            "popped",
            "-g",
            "poppers",
            "-m",
            "POP",
            "-q",
            "8",
        )
        assert "success" in admin.run(*mode)
    with Messages(release("5.5.0"), tmp_path, name_service.address, poll_ms=1000) as peer:
        assert peer.ask("subscribe poppers popped pop") == "subscribed"
        assert "sent 100 failures 0" in peer.ask("send popped 0 100")
        assert peer.ask("await poppers 100").startswith("got 100 ")
