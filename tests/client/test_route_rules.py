"""What RocketMQ's clients derive from a route: addresses and queues, also of ordered and static topics."""

from typing import Any

import pytest

from routebook.client import Broker, Queue, Queues, Route
from routebook.client.model import NO_BROKER, route_of


def broker_data(name: str, *ids: int) -> dict[str, Any]:
    return {"brokerName": name, "cluster": "c", "brokerAddrs": {str(number): f"127.0.0.{number}:1" for number in ids}}


def queue_data(name: str, *, read: int = 2, write: int = 2, perm: int = 6) -> dict[str, Any]:
    return {"brokerName": name, "readQueueNums": read, "writeQueueNums": write, "perm": perm, "topicSysFlag": 0}


def mapping(name: str, *numbers: int, total: int, epoch: int = 1, scope: str = "__global__") -> dict[str, Any]:
    ids = {str(number): at for at, number in enumerate(numbers)}
    return {"bname": name, "totalQueues": total, "epoch": epoch, "scope": scope, "currIdMap": ids, "topic": "T"}


def route(brokers: list[dict[str, Any]], queues: list[dict[str, Any]], **more: Any) -> Route:
    return route_of("T", {"brokerDatas": brokers, "queueDatas": queues, "filterServerTable": {}, **more}, {})


def test_the_master_is_selected_else_any_slave() -> None:
    assert Broker("b", "c", {1: "slave:1", 0: "master:1"}).select_address() == "master:1"
    slaves = {Broker("b", "c", {1: "one:1", 2: "two:1"}).select_address() for _ in range(50)}
    assert slaves == {"one:1", "two:1"}
    assert Broker("b", "c", {}).select_address() is None


def test_messages_are_written_to_groups_with_a_master_and_read_from_all() -> None:
    found = route(
        [broker_data("b", 0), broker_data("a", 0, 1), broker_data("headless", 1)],
        [queue_data("b", write=1), queue_data("a", read=1), queue_data("headless"), queue_data("without a group")],
    )
    assert found.write_queues() == [Queue("a", 0), Queue("a", 1), Queue("b", 0)]
    assert {queue.broker for queue in found.read_queues()} == {"a", "b", "headless", "without a group"}
    assert len(found.read_queues()) == 1 + 2 + 2 + 2


@pytest.mark.parametrize(("perm", "writes", "reads"), [(6, 2, 2), (4, 0, 2), (2, 2, 0), (1, 0, 0)])
def test_permission_decides_who_uses_a_queue(perm: int, writes: int, reads: int) -> None:
    found = route([broker_data("a", 0)], [queue_data("a", perm=perm)])
    assert len(found.write_queues()) == writes
    assert len(found.read_queues()) == reads
    assert found.queues["a"] == Queues(2, 2, perm)


def test_an_ordered_topic_has_the_queues_that_its_configuration_names() -> None:
    found = route([broker_data("a", 0)], [queue_data("a", write=8)], orderTopicConf="b:2;a:1")
    assert found.write_queues() == [Queue("b", 0), Queue("b", 1), Queue("a", 0)]


def test_a_static_topic_has_logical_queues_held_by_the_newest_epoch() -> None:
    found = route(
        [broker_data("a", 0), broker_data("b", 0)],
        [queue_data("a"), queue_data("b")],
        topicQueueMappingByBroker={
            "a": mapping("a", 0, 1, total=4, epoch=1),
            "b": mapping("b", 1, 2, total=4, epoch=2),
        },
    )
    assert [(queue.number, queue.holder) for queue in found.write_queues()] == [
        (0, "a"),
        (1, "b"),
        (2, "b"),
        (3, NO_BROKER),
    ]
    assert {queue.broker for queue in found.read_queues()} == {"__syslo__global__"}
