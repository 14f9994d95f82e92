"""Simulated fleets in tests, and what their journals say must be in the route table."""

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from routebook.client.name_server import NameServer
from routebook.compare.collecting import ask_routes
from routebook.model.broker import DataVersion, Registration
from routebook.model.topic import QueueData
from tests.reference.registry import ReferenceRegistry, Unregistration

Line = dict[str, Any]
Table = tuple[dict[str, dict[int, str]], dict[str, dict[str, QueueData]]]
"""Seats by group; queues by topic and group."""


def first_address() -> str:
    """Tests run side by side, and each broker wants a host for itself."""
    return f"127.{random.randrange(64, 127)}.{random.randrange(256)}.1:{random.randrange(20_000, 30_000)}"


def lines_of(path: Path) -> list[Line]:
    """Those that are whole: it may be written just now."""
    whole, _, _ = path.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def truth_of(lines: Iterable[Line]) -> Table:
    """By the rules in plain Python, from what the fleet says it did. Who was killed is gone, as it will be when
    somebody has noticed.
    """
    replay = _Replay()
    for line in lines:
        replay.take(line)
    registry = replay.registry
    return {name: dict(group.addresses) for name, group in registry.groups.items()}, registry.topics


async def table_of(address: str) -> Table:
    """What a name server says."""
    async with await NameServer.connect(address) as server:
        groups, _ = await server.cluster_info()
        topics = await server.topics()
        assert isinstance(topics, frozenset), topics
        routes = await ask_routes(server, topics)
    seats = {name: dict(group.addresses) for name, group in groups.items()}
    return seats, {topic: dict(route.queues) for topic, route in routes.items() if route}


class _Replay:
    def __init__(self) -> None:
        self.registry = ReferenceRegistry(now_ms=lambda: 0)
        self._in_full: dict[tuple[object, ...], Mapping[str, QueueData]] = {}

    def take(self, line: Line) -> None:
        match line["event"]:
            case "registered":
                self._register(line)
            case "unregistered":
                gone = Unregistration(line["cluster"], line["address"], line["broker"], broker_id=line["id"])
                self.registry.unregister([gone])
            case "stopped" | "silence-ended":
                # A silence is longer than the timeout.
                self.registry.lose([(line["cluster"], line["address"])])
            case "topic-deleted":
                self.registry.delete_topic(line["topic"], line["cluster"])
            case "write-permission":
                self.registry.set_write_permission(line["broker"], writable=line["writable"])

    def _register(self, line: Line) -> None:
        if not any(answer.get("code") == 0 for answer in line["servers"].values()):
            return
        version = DataVersion(*line["data_version"])
        key = (line["broker"], version)
        if line["repeats"]:
            topics = self._in_full[key]
        else:
            topics = {name: QueueData(*values) for name, values in line["topics"].items()}
        if line["full"]:
            self._in_full[key] = topics
        said = Registration(
            cluster=line["cluster"],
            broker=line["broker"],
            broker_id=line["id"],
            address=line["address"],
            acting_master=False,
            data_version=version,
            topics=topics,
        )
        self.registry.register(said, incarnation=f"{line['n']}")
