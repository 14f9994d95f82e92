"""Simulated fleets: their journals, and the route table that must follow from them."""

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from routebook.compare.collecting import collect_routes
from routebook.model.broker import DataVersion, QueueData, Registration
from routebook.remoting_client import NameServer
from tests.reference.registry import ReferenceRegistry, Unregistration

Line = dict[str, Any]
Table = tuple[dict[str, dict[int, str]], dict[str, dict[str, QueueData]]]
"""Seats by group; queues by topic and group."""


def first_address() -> str:
    """A random one, since tests run in parallel and each simulated broker needs a host of its own."""
    return f"127.{random.randrange(64, 127)}.{random.randrange(256)}.1:{random.randrange(20_000, 30_000)}"


def lines_of(path: Path) -> list[Line]:
    """The complete lines. The file may be written at the moment."""
    whole, _, _ = path.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def expected_table(lines: Iterable[Line]) -> Table:
    """What the reference model derives from the journal of a fleet. A killed broker is removed at once here; a name
    server needs time to notice.
    """
    replay = _Replay()
    for line in lines:
        replay.apply(line)
    registry = replay.registry
    return {name: dict(group.addresses) for name, group in registry.groups.items()}, registry.topics


async def table_of(address: str) -> Table:
    """The route table of a name server."""
    async with await NameServer.connect(address) as server:
        groups, _ = await server.cluster_info()
        topics = await server.topics()
        assert isinstance(topics, frozenset), topics
        routes = await collect_routes(server, topics)
    seats = {name: dict(group.addresses) for name, group in groups.items()}
    return seats, {topic: dict(route.queues) for topic, route in routes.items() if route}


class _Replay:
    def __init__(self) -> None:
        self.registry = ReferenceRegistry(now_ms=lambda: 0)
        self._full_topics: dict[tuple[object, ...], Mapping[str, QueueData]] = {}

    def apply(self, line: Line) -> None:
        match line["event"]:
            case "registered":
                self._register(line)
            case "unregistered":
                removal = Unregistration(line["cluster"], line["address"], line["broker"], broker_id=line["id"])
                self.registry.unregister([removal])
            case "stopped" | "silence-ended":
                # A simulated silence is always longer than the broker's timeout.
                self.registry.remove_lost([(line["cluster"], line["address"])])
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
            topics = self._full_topics[key]
        else:
            topics = {name: QueueData(*values) for name, values in line["topics"].items()}
        if line["full"]:
            self._full_topics[key] = topics
        registration = Registration(
            cluster=line["cluster"],
            broker=line["broker"],
            broker_id=line["id"],
            address=line["address"],
            acting_master=False,
            data_version=version,
            topics=topics,
        )
        self.registry.register(registration, incarnation=f"{line['n']}")
